"""Whether a stack finds room on Nebius before `up`: its region, quotas for all that is missing, and machines now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common.v1 import GetByNameRequest
from nebius.api.nebius.iam import v2 as iam
from nebius.api.nebius.mk8s import v1 as mk8s
from nebius.api.nebius.quotas import v1 as quotas
from nebius.base.error import SDKError
from nebius.sdk import SDK
from rich.console import Console
from rich.markup import escape

from cli.access.nebius_sdk import AUTH_OPTIONS, close_sdk, open_sdk
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.nebius.needs import Needs, NodeNeed, needs
from config.sections.cloud import NebiusCloud

LIMIT = 30.0
"""Seconds for all answers together."""

State = Literal["fine", "warning", "change", "unchecked"]
"""`change`: `up` would fail or hang until something is changed. `unchecked`: the check could not be made."""

_STYLES: dict[State, tuple[str, str]] = {
    "fine": ("fine", "green"),
    "warning": ("warning", "yellow"),
    "change": ("change", "red bold"),
    "unchecked": ("not checked", "magenta"),
}


@dataclass(frozen=True)
class Finding:
    """What one check found: one line for people, one object for scripts."""

    check: str
    """Name of the check, for example `quotas`."""
    state: State
    message: str


def print_findings(findings: Sequence[Finding]) -> None:
    """Lines for people, in the order of the checks."""
    console = Console(highlight=False, emoji=False)
    width = max(len(item.check) for item in findings)
    for item in findings:
        word, style = _STYLES[item.state]
        console.print(f"[{style}]{word:11}[/] {item.check:{width}}  {escape(item.message)}", soft_wrap=True)


def must_change(findings: Sequence[Finding]) -> bool:
    """Whether anything must change before `up`."""
    return any(item.state == "change" for item in findings)


def as_data(findings: Sequence[Finding], *, cloud: str) -> dict[str, Any]:
    """Plain data for scripts."""
    return {"cloud": cloud, "ok": not must_change(findings), "findings": [asdict(item) for item in findings]}


def diagnose(config: ClusterConfig, cloud: NebiusCloud, *, limit: float = LIMIT) -> list[Finding]:
    """Ask the cloud and compare. Raises Failure without usable credentials."""
    sdk, name = open_sdk(), cloud.prefix(config.cluster.namespace)
    try:
        with Console(stderr=True, highlight=False).status("Asking the cloud"):
            answers = asyncio.run(ask(sdk, cloud, name, seconds=limit))
    finally:
        close_sdk(sdk)
    if isinstance(answers, Unanswered):
        return [Finding("project", "change", f"{cloud.project_id} cannot be read: {answers.reason}")]
    wanted = needs(config)
    missing = tuple(_missing(node, answers, name) for node in wanted.nodes)
    return [
        _check_project(answers, cloud),
        _check_present(answers, wanted, missing),
        *_check_quotas(answers, wanted, missing, config, cloud),
        *_check_capacity(answers, missing, config, cloud.region),
    ]


def _check_project(answers: Answers, cloud: NebiusCloud) -> Finding:
    project = answers.project
    region = project.spec.region
    told = f"{cloud.project_id} ({project.metadata.name}) in {region}, of {project.metadata.parent_id}"
    if region != cloud.region:
        return Finding("project", "change", f"{told}: cloud.region is {cloud.region}; correct one of them")
    return Finding("project", "fine", told)


def _check_present(answers: Answers, wanted: Needs, missing: Sequence[NodeNeed]) -> Finding:
    """How much is still to be made."""
    if isinstance(answers.groups, Unanswered):
        what = "what is there already (what is not known counts as still to be made)"
        return Finding("present", "unchecked", f"{what}: {answers.groups.reason}")
    if answers.groups is None:
        return Finding("present", "fine", f"nothing yet: {wanted.machines} machines to be made")
    left = sum(node.count for node in missing)
    return Finding("present", "fine", f"the cluster; {left} of {wanted.machines} machines are still to be made")


def _missing(node: NodeNeed, answers: Answers, name: str) -> NodeNeed:
    """Those that are not there yet of a stack whose names begin with `name`. Machines of another preset do not help."""
    there = 0
    for group in listed(answers.groups):
        made_of, stem = group.spec.template.resources, group.metadata.name
        if node.pool is not None and stem.rpartition("-")[2].isdecimal():  # `<prefix>-<pool>-<number>`
            stem = stem.rpartition("-")[0]
        same = (made_of.platform, made_of.preset) == (node.platform, node.preset)
        if same and stem == f"{name}-{node.pool or node.role}":
            there += group.status.node_count
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


class Demand(NamedTuple):
    """Machines of one kind that come from the same place."""

    platform: str
    preset: str
    fabric: str
    """Empty: any. So it is of an existing GPU cluster, too."""
    source: str
    """`preemptible`, `reserved`, `on demand` or `reserved or on demand`."""

    def offers(self, answers: Answers, region: str) -> list[capacity.ResourceAdvice]:
        """What the service says of such machines where they will do."""
        asked = [(advice, advice.spec, advice.spec.compute_instance) for advice in listed(answers.advice)]
        return [
            advice
            for advice, spec, of in asked
            if of is not None
            and (of.platform, of.preset.name) == (self.platform, self.preset)
            and spec.region == region
            and self.fabric in {"", spec.fabric}
        ]


def _demands(nodes: Sequence[NodeNeed], config: ClusterConfig) -> Counter[Demand]:
    """The machines with GPUs that are missing, by where they come from."""
    wanted: Counter[Demand] = Counter()
    sources = {"STRICT": "reserved", "FORBID": "on demand"}
    for node in nodes:
        if node.pool is not None and node.size.gpus and node.count:
            pool = config.worker_nodes[node.pool]
            fabric = (pool.gpu_cluster.infiniband_fabric or "") if pool.gpu_cluster is not None else ""
            policy = pool.reservation.policy if pool.reservation is not None else "AUTO"
            source = "preemptible" if pool.preemptible else sources.get(policy, "reserved or on demand")
            wanted[Demand(node.platform, node.preset, fabric, source)] += node.count
    return wanted


def _check_capacity(
    answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str
) -> Iterator[Finding]:
    """Whether the service has the machines that are still missing. What it says holds for this moment only."""
    for demand, wanted in _demands(nodes, config).items():
        where = f" on {demand.fabric}" if demand.fabric else ""
        subject = f"{wanted} x {demand.platform} {demand.preset}{where}, {demand.source}"
        if isinstance(answers.advice, Unanswered):
            yield Finding("capacity", "unchecked", f"{subject}: {answers.advice.reason}")
            continue
        here: list[int] = []
        for status in (advice.status for advice in demand.offers(answers, region)):
            of = {"preemptible": status.preemptible, "reserved": status.reserved, "on demand": status.on_demand}
            here.append(sum(offer.available for name, offer in of.items() if name in demand.source.split(" or ")))
        if not here:
            said = f"{subject}: the service names none in {region}, so it may be wrong"
            yield Finding("capacity", "warning", said)
        elif sum(here) >= wanted:
            yield Finding("capacity", "fine", f"{subject}: {sum(here)} can be had now")
        else:
            instead = "make the pool smaller, reserve capacity, or try later (quotas bound this number, too)"
            yield Finding("capacity", "change", f"{subject}: only {sum(here)} can be had now; {instead}")


def _check_quotas(
    answers: Answers, wanted: Needs, missing: Sequence[NodeNeed], config: ClusterConfig, cloud: NebiusCloud
) -> Iterator[Finding]:
    """One line for all that suffice, one for each that does not. A tenant's and its project's quotas both bind."""
    allowed: list[tuple[str, quotas.QuotaAllowance]] = []
    for whose, answer in (("tenant", answers.tenant_quotas), ("project", answers.project_quotas)):
        if isinstance(answer, Unanswered):
            yield Finding("quotas", "unchecked", f"quotas of the {whose}: {answer.reason}")
        allowed += [(whose, item) for item in listed(answer) if item.spec.region in {cloud.region, ""}]
    if isinstance(answers.tenant_quotas, Unanswered):
        return
    # Of a cluster that is there, machines alone are counted.
    rest = Counter[str]() if isinstance(answers.groups, tuple) else _of_new_cluster(wanted)
    rest.subtract(_reserved(answers, missing, config, cloud.region))
    amount, most = (_of_machines(missing, config, most=most) for most in (False, True))
    for each in (amount, most):
        each.update(rest)
    enough: list[str] = []
    unlisted: list[str] = []
    for name in sorted(+most):  # without what is not needed
        found = [(whose, item) for whose, item in allowed if item.metadata.name == name]
        short = [Finding("quotas", "change", text) for text in _short(name, amount[name], found)]
        more = [f"{text}, with all machines of autoscaling" for text in _short(name, most[name], found)]
        short += [Finding("quotas", "warning", text) for text in more]
        yield from short[:1]
        if not short:
            (enough if found else unlisted).append(name)
    if unlisted:
        yield Finding("quotas", "unchecked", f"{', '.join(unlisted)}: no such quota is listed in {cloud.region}")
    if enough:
        yield Finding("quotas", "fine", f"enough in {cloud.region}: {', '.join(enough)}")


def _short(name: str, wanted: int, allowed: Sequence[tuple[str, quotas.QuotaAllowance]]) -> Iterator[str]:
    """Each quota that has not so much left. One without a limit binds nothing."""
    for whose, quota in allowed:
        limit, unit = quota.spec.limit, quota.status.unit
        left = max(0, limit - quota.status.usage) if limit is not None else wanted
        if left < wanted:
            has = f"the {whose}'s quota has {_told(left, unit)} left of {_told(limit or 0, unit)}"
            yield f"{name}: {_told(wanted, unit)} more needed, and {has}"


def _reserved(answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str) -> Counter[str]:
    """By quota: GPUs that come out of reservations, which count against none."""
    found: Counter[str] = Counter()
    gpus = {(node.platform, node.preset): node.size.gpus for node in nodes}
    for demand, machines in _demands(nodes, config).items():
        there = sum(advice.status.reserved.available for advice in demand.offers(answers, region))
        taken = min(machines, there) if "reserved" in demand.source else 0
        found[_gpu_quota(demand.platform)] += taken * gpus[demand.platform, demand.preset]
    return found


def _of_machines(nodes: Sequence[NodeNeed], config: ClusterConfig, *, most: bool) -> Counter[str]:
    """Amounts by quota that the machines begin with, or with `most` may come to by autoscaling.

    The names are those that the service lists (`nebius quotas quota-allowance list`). Machines with GPUs do not count
    against vCPUs, preemptible ones have a quota of their own, and each machine takes two addresses: its own and the
    range of its pods.
    """
    total: Counter[str] = Counter()
    for node in nodes:
        pool = config.worker_nodes.get(node.pool or "")
        machines = node.most if most else node.count
        total["compute.instance.count"] += machines
        total["compute.disk.count"] += machines
        total[f"compute.disk.size.{_slug(node.disk_type)}"] += machines * node.disk_gib * GIBIBYTE
        total["vpc.allocation.count"] += 2 * machines
        if pool is not None and pool.preemptible:
            total["compute.instance.preemptible.count"] += machines
        elif node.size.gpus:
            total[_gpu_quota(node.platform)] += machines * node.size.gpus
        else:
            total["compute.instance.non-gpu.vcpu"] += machines * node.size.vcpus
    return total


def _of_new_cluster(wanted: Needs) -> Counter[str]:
    """Amounts by quota of all but the machines."""
    disks = {f"compute.disk.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in wanted.volume_gib.items()}
    shared = {f"compute.filesystem.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in wanted.filesystem_gib.items()}
    return Counter({
        "compute.gpucluster.count": len(wanted.fabrics),
        "compute.filesystem.count": sum(item.filesystem.id is None for item in wanted.filesystems),
        "compute.disk.count": len(wanted.volume_gib),
        "mk8s.cluster.count": 1,
        **disks,
        **shared,
    })  # fmt: skip


def _gpu_quota(platform: str) -> str:
    """The quota of the machines' GPUs: `compute.instance.gpu.h100` for `gpu-h100-sxm`."""
    return f"compute.instance.gpu.{platform.split('-')[1]}"


def _slug(kind: str) -> str:
    """`network-ssd` of `NETWORK_SSD`."""
    return kind.lower().replace("_", "-")


def _told(amount: int, unit: str) -> str:
    return f"{amount / GIBIBYTE:.0f} GiB" if unit == "byte" else str(amount)


# ---------------------------------------------------------------- the questions, all at the same time

PAGE_SIZE = 200
"""Items of one page: the most that all lists allow."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """No answer to a question."""

    reason: str
    missing: bool = False
    """Whether the answer is that there is no such thing."""


Answer: TypeAlias = T | Unanswered


@dataclass(frozen=True)
class Answers:
    """Answers to all questions about one stack."""

    project: iam.Project
    groups: Answer[tuple[mk8s.NodeGroup, ...] | None]
    """Node groups of the stack's cluster. None: there is no such cluster."""
    tenant_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    project_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    advice: Answer[tuple[capacity.ResourceAdvice, ...]]
    """What the tenant could have now, by region, fabric and preset."""


def listed(answer: Answer[tuple[T, ...] | None]) -> tuple[T, ...]:
    """What is in a list; nothing where there was no answer, or no list."""
    return answer if isinstance(answer, tuple) else ()


async def ask(sdk: SDK, cloud: NebiusCloud, cluster: str, *, seconds: float) -> Answer[Answers]:
    """Everything about a stack that comes in time. Without its project, whose tenant is asked too, nothing is asked.

    Nothing that the service does is raised: then there is no answer.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    limits = {"timeout": seconds, "per_retry_timeout": seconds / 2, "auth_timeout": seconds}
    options: dict[str, Any] = {**limits, "auth_options": AUTH_OPTIONS, "retries": 2}

    async def one(call: Callable[..., Awaitable[T]], request: Any) -> Answer[T]:
        try:
            async with asyncio.timeout_at(deadline):
                return await call(request, **options)
        except TimeoutError:
            return Unanswered(reason=f"no answer within {seconds:g} s")
        except (SDKError, OSError) as error:
            return _unanswered(error)

    every = partial(_pages, one)

    async def groups() -> Answer[tuple[mk8s.NodeGroup, ...] | None]:
        by_name = GetByNameRequest(parent_id=cloud.project_id, name=cluster)
        found = await one(mk8s.ClusterServiceClient(sdk).get_by_name, by_name)
        if isinstance(found, Unanswered):
            return None if found.missing else found
        request = mk8s.ListNodeGroupsRequest(parent_id=found.metadata.id)
        return await every(mk8s.NodeGroupServiceClient(sdk).list, request)

    project = await one(iam.ProjectServiceClient(sdk).get, iam.GetProjectRequest(id=cloud.project_id))
    if isinstance(project, Unanswered):
        return project
    tenant = project.metadata.parent_id
    of_quotas = quotas.QuotaAllowanceServiceClient(sdk).list
    # The service gives no advice about a project.
    advice = capacity.ListResourceAdviceRequest(parent_id=tenant)
    found = await asyncio.gather(
        groups(),
        every(of_quotas, quotas.ListQuotaAllowancesRequest(parent_id=tenant)),
        every(of_quotas, quotas.ListQuotaAllowancesRequest(parent_id=cloud.project_id)),
        every(capacity.ResourceAdviceServiceClient(sdk).list, advice),
    )
    return Answers(project, *found)


async def _pages(
    one: Callable[..., Awaitable[Any]], call: Callable[..., Awaitable[Any]], request: Any
) -> Answer[tuple[Any, ...]]:
    """Every item of a list, page by page."""
    items: list[Any] = []
    request.page_size = PAGE_SIZE
    while True:
        page = await one(call, request)
        if isinstance(page, Unanswered):
            return page
        items += page.items
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return tuple(items)


def _unanswered(error: Exception) -> Unanswered:
    status = getattr(error, "status", None)
    code = str(getattr(getattr(status, "code", None), "name", ""))
    said = " ".join(str(getattr(status, "message", None) or error).split()).rstrip(".") or type(error).__name__
    return Unanswered(reason=f"{code or 'it failed'} ({said})", missing=code == "NOT_FOUND")
