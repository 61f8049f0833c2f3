"""The document behind `preview` and `validate --against`: the same whatever the stack is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cli.change.change import Change, counts_of, of_recording
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched, queue_and_pods, refusal
from cli.change.plan import changes_of, jobs_of_plan, plan
from cli.engine import pulumi as engines
from cli.engine.plan import against_state_and_cluster, compared, jobs_of, refuse_foreign_namespace, steps_of
from cli.errors import CHANGES, REFUSED, USAGE, Failure, Refused
from cli.kubectl.client import Kubectl
from cli.preview import policy as policies
from cli.preview.policy import PolicyPlan
from cli.program.recording import record
from cli.stack import Stack, open_stack
from config import ConfigError
from config.cluster import ClusterConfig, data_volumes
from config.nebius.needs import Needs, needs
from config.sections.cloud import NebiusCloud
from slurm.conf import effective_settings

Outcome = Literal["none", "changes", "refused"]

NOT_COMPARED = "what else would change is not known: correct what is refused first"


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes of one kind: a worker pool's, or the machines of one of our own roles."""

    name: str
    """The pool, or `system`, `controller`, `login`."""
    role: str
    count: int
    most: int
    """Nodes that autoscaling may come to."""
    kind: str
    """Platform and preset; empty where the cluster is already there."""
    cpus: int
    """CPUs of all of them: of the machines where the cloud makes them, else of the worker pods."""
    gpus: int
    """GPUs of all of them."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume that holds data."""

    name: str
    """Key in the stack file: `jail`, `controller`, `accounting.database`, `mounts.<name>`."""
    size_gib: int
    """Capacity in GiB, rounded up."""
    kind: str
    """Kind of file system, `disk`, or empty where the cluster's storage class decides."""
    existing: str
    """Id of the file system that is used as it is; empty for a new one."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Everything that a stack has while it runs."""

    cloud: str
    nodes: tuple[Nodes, ...]
    volumes: tuple[Volume, ...]
    fabrics: tuple[str, ...]
    """InfiniBand fabrics on which GPU clusters are made."""

    @property
    def total(self) -> int:
        """Nodes in all."""
        return sum(item.count for item in self.nodes)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(item.gpus for item in self.nodes)

    @property
    def cpus(self) -> int:
        """CPUs in all."""
        return sum(item.cpus for item in self.nodes)

    def as_data(self, effects: Sequence[Effect] = ()) -> dict[str, Any]:
        """The summary for scripts, with the changes that replace, delete or are refused."""
        return {
            "cloud": self.cloud,
            "nodes": {"total": self.total, "kinds": [asdict(item) for item in self.nodes]},
            "gpus": {"total": self.gpus, "pools": {item.name: item.gpus for item in self.nodes if item.gpus}},
            "vcpus": self.cpus,
            "filesystems": [asdict(item) for item in self.volumes],
            "fabrics": list(self.fabrics),
            "effects": [asdict(effect) for effect in effects],
        }

    def lines(self) -> list[str]:
        """The summary for people: two or three lines where the cluster is already there, else some more."""
        if self.cloud != "nebius":
            nodes = _joined(f"{item.count} {item.name}" for item in self.nodes)
            gpus = f", {self.gpus} GPUs" if self.gpus else ""
            return [
                f"{_counted(self.total, 'node')} ({nodes}), {self.cpus} CPUs{gpus}",
                f"volumes: {_joined(_volume(item) for item in self.volumes)}",
            ]
        width = max(len(item.name) for item in self.nodes)
        table = [f"  {item.name:{width}}  {_of_kind(item)}" for item in self.nodes]
        fabrics = [f"GPU clusters: {_joined(self.fabrics)}"] if self.fabrics else []
        return [
            f"{_counted(self.total, 'node')}, {self.gpus} GPUs, {self.cpus} vCPUs",
            *table,
            *fabrics,
            f"file systems: {_joined(_volume(item) for item in self.volumes)}",
        ]


def summarize(config: ClusterConfig) -> Summary:
    """What the stack file asks for. The stack file must have been checked."""
    made = needs(config) if isinstance(config.cloud, NebiusCloud) else None
    return Summary(
        cloud=config.cloud.kind,
        nodes=tuple(_pools(config) if made is None else _machines(made)),
        volumes=tuple(_volumes(config)),
        fabrics=() if made is None else tuple(sorted(made.fabrics)),
    )


def _pools(config: ClusterConfig) -> Iterator[Nodes]:
    for name, pool in config.worker_nodes.items():
        cpus, gpus = pool.least * pool.resources.cpus, pool.least * pool.resources.gpus.count
        yield Nodes(name=name, role="worker", count=pool.least, most=pool.most, kind="", cpus=cpus, gpus=gpus)


def _machines(needed: Needs) -> Iterator[Nodes]:
    for item in needed.nodes:
        yield Nodes(
            name=item.pool or item.role,
            role=item.role,
            count=item.count,
            most=item.most,
            kind=f"{item.platform} {item.preset}",
            cpus=item.count * item.size.vcpus,
            gpus=item.count * item.size.gpus,
        )


def _volumes(config: ClusterConfig) -> Iterator[Volume]:
    made = isinstance(config.cloud, NebiusCloud)
    for item in data_volumes(config):
        filesystem = item.filesystem if made else None
        kind = filesystem.type if filesystem is not None else "disk" if made else ""
        existing = (filesystem.id if filesystem is not None else None) or ""
        yield Volume(name=item.name, size_gib=item.size_gib, kind=kind, existing=existing)


def _of_kind(item: Nodes) -> str:
    most = f" (up to {item.most})" if item.most > item.count else ""
    gpus = f"{item.gpus} GPUs, " if item.gpus else ""
    return f"{_counted(item.count, 'node')}{most} {item.kind}: {gpus}{item.cpus} vCPUs"


def _volume(item: Volume) -> str:
    kind = f" {item.kind}" if item.kind else ""
    return f"{item.name} {_size(item.size_gib)}{kind}{f' (existing, {item.existing})' if item.existing else ''}"


def _size(gib: int) -> str:
    return f"{gib // 1024}Ti" if gib >= 1024 and gib % 1024 == 0 else f"{gib}Gi"


def _joined(items: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(items) or "none"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What it takes to bring a cluster in line with a stack file."""

    stack: str
    against: Literal["cluster", "engine", "file"]
    """What the stack file was compared with: the cluster, Pulumi's state and the cluster, or an earlier stack file."""
    summary: Summary
    summary_before: Summary | None = None
    """What the earlier stack file asked for; None where there is none."""
    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    policy: PolicyPlan | None = None
    jobs: JobsTouched = field(default_factory=JobsTouched)
    """Which jobs the change touches; none where there is no queue to look at."""

    @property
    def compared(self) -> bool:
        """Whether all that would change is known."""
        return NOT_COMPARED not in self.notes

    @property
    def refused(self) -> tuple[str, ...]:
        """Each reason why the change is refused, with the way out."""
        effects = (f"{effect.kind} {effect.name}: {effect.refused}" for effect in self.effects if effect.refused)
        jobs = refusal(self.jobs)
        return (*effects, *([in_one_line(jobs)] if jobs else []))

    @property
    def outcome(self) -> Outcome:
        """Whether anything is to be changed, and whether it may be."""
        if self.refused:
            return "refused"
        # Without an answer of Slurm the policy's lines are those of a first start: they alone are no change.
        of_policy = self.policy is not None and self.policy.compared and self.policy.changes
        return "changes" if self.changes or of_policy else "none"

    def counts(self) -> dict[str, int]:
        """Number of objects by action."""
        return counts_of(self.changes)

    def as_data(self) -> dict[str, Any]:
        """The document for scripts."""
        return {
            "outcome": self.outcome,
            "stack": self.stack,
            "against": self.against,
            "changes": [change.as_data() for change in self.changes],
            "effects": [asdict(effect) for effect in self.effects],
            "refused": len(self.refused),
            "refusals": list(self.refused),
            "notes": list(self.notes),
            "jobs": self.jobs.as_data(),
            "summary": self.summary.as_data(self.effects),
            "summary_before": None if self.summary_before is None else self.summary_before.as_data(),
            "policy": None if self.policy is None else asdict(self.policy),
        }


def exit_status(preview: Preview, *, detailed: bool) -> int:
    """0, or REFUSED; with `detailed` CHANGES if there is something to change."""
    if preview.outcome == "refused":
        return REFUSED
    return CHANGES if detailed and preview.outcome == "changes" else 0


def in_one_line(refused: Refused) -> str:
    """A refusal in one line, with the way out."""
    return f"{refused.message}. {refused.hint}" if refused.hint else refused.message


_ASKS = {"all", "associations", "limits", "qos", "safe", "wckeys"}
"""Of AccountingStorageEnforce: each asks for an association, some by way of another one (slurm.conf(5))."""


def notes_of(config: ClusterConfig) -> tuple[str, ...]:
    """One sentence for each; none of it is refused, as it may be on its way out of the stack."""
    served = {pool for partition in config.partitions.values() for pool in partition.pools}
    idle = [name for name in config.worker_nodes if config.partitions and name not in served]
    found = [f"worker_nodes.{name} is in no partition: no job can run there" for name in idle]
    enforced = effective_settings(config).get("AccountingStorageEnforce", "").lower().strip('"').split(",")
    if config.accounts and _ASKS & {part.strip() for part in enforced}:
        without = [name for name, user in config.users.items() if not user.accounts]
        found += [f"users.{name} has no accounts: Slurm refuses every job of theirs" for name in without]
    return tuple(found)


def of_cluster(kubectl: Kubectl, stack: Stack) -> Preview:
    """What an apply with kubectl would do. Raises Failure if the cluster is not one that kubectl may change.

    What we refuse, the API server may refuse too: then there is our reason, and no list of changes.
    """
    with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
        asked = pool.submit(queue_and_pods, kubectl, stack.config.cluster.namespace)
        policy = pool.submit(policies.planned_policy, kubectl, stack.config)
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        first = Preview(
            stack=stack.name, against="cluster", summary=summarize(stack.config), effects=planned.effects,
            notes=notes_of(stack.config),
        )  # fmt: skip
        if first.refused:
            return replace(first, notes=(NOT_COMPARED,))
        found, stuck = changes_of(kubectl, planned, stack.config)
    return replace(
        first,
        changes=tuple(found),
        effects=(*planned.effects, *stuck),
        policy=policy.result(),
        jobs=jobs_of_plan(kubectl, planned, found, asked),
    )


def of_engine(stack: Stack) -> Preview:
    """What an update by the Pulumi engine would do, in its own words.

    What we refuse, the API server may refuse the engine's preview, too: then there is our reason, and no list. Raises
    Failure with the engine's words if it cannot tell for any other reason.
    """
    state = engines.export(stack)
    refuse_foreign_namespace(stack)
    code, printed = engines.preview(stack)
    policy = policies.policy_of(stack)
    preview = Preview(stack=stack.name, against="engine", summary=summarize(stack.config), policy=policy)
    if code != 0:
        expected = against_state_and_cluster(stack, state)
        refused = replace(preview, effects=expected.effects, notes=(NOT_COMPARED,))
        if refused.refused:
            return replace(refused, jobs=jobs_of(stack, expected))
    planned = steps_of(stack, state, printed, failed=code != 0)
    return replace(
        preview,
        changes=planned.changes,
        effects=planned.effects,
        notes=(*notes_of(stack.config), *(f"Pulumi: {warning}" for warning in planned.warnings)),
        jobs=jobs_of(stack, planned),
    )


def of_files(stack: Stack, file: Path) -> Preview:
    """What the change from an earlier stack file means. Asks no cluster and no cloud, and needs no keys."""
    old = _earlier(file)
    runs = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    planned = compared(stack, *map(of_recording, runs))
    return Preview(
        stack=stack.name,
        against="file",
        summary=summarize(stack.config),
        summary_before=summarize(old.config),
        # Keys are made once, whatever the stack file says.
        changes=tuple(item for item in planned.changes if not item.resource.type.startswith("random:")),
        effects=planned.effects,
        notes=notes_of(stack.config),
    )


def _earlier(file: Path) -> Stack:
    """An earlier version of a stack file. Raises Failure if it is not a valid one."""
    try:
        return open_stack(file)
    except ConfigError as error:
        raise Failure(
            f"--against {file}: {error.problems[0].where}: {error.problems[0].message}",
            hint="name a version of the stack file that this version of slurmstack accepts",
            code=USAGE,
        ) from error
