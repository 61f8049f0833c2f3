"""What is in the jail's volume, from a Job made as the one that fills it, and whether a stack's root fits to that."""

from __future__ import annotations

import copy
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cli.access.reach import reach
from cli.change.engine_plan import EnginePlan
from cli.change.owner import jail_root_of, release_of, root_of
from cli.change.plan import Plan
from cli.errors import Failure, Refused
from cli.kubectl.client import Kubectl
from cli.kubectl.jobs import answer_in, open_jobs, run_document
from cli.stack import Stack
from config.cluster import ClusterConfig
from local.report import PlainReport, Report
from slurm.names import JAIL_ROOT, LOGIN

POPULATE = "populate-jail"
"""Beginning of the name of the Job that fills a root."""

REMOVING = "jail-remove-"
"""Beginning of the name of a Job that removes one."""

PROGRAM = "/usr/libexec/slurmstack/roots"
COMPONENT = "jail-roots"

FIRST = "first"
"""The root without a name, for people. No root can be called so."""


def filling_job(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    """The Job of the cluster that has filled its jail. Raises Failure."""
    found = kubectl.items("job", "-n", namespace, "-l", "app.kubernetes.io/component=jail")
    jobs = [item for item in found if str(item["metadata"]["name"]).startswith(POPULATE)]
    if not jobs:
        raise Failure(
            "there is no job that has filled the jail", hint="`slurmstack up` with the jail.root of before makes it"
        )
    return max(jobs, key=lambda item: str(item["metadata"].get("creationTimestamp", "")))


def ask(kubectl: Kubectl, namespace: str, like: Mapping[str, Any], report: Report, command: str, **env: str) -> str:
    """Run `roots COMMAND` to its end in a pod with the volume, made like a Job that fills a root; returns its log.

    Where nobody waits for it any more, it ends: what was asked before it began may not hold when its pod starts.
    """
    spec = copy.deepcopy(dict(like["spec"]))
    # What Kubernetes has put there for the Job that it was, and what the stack has for that one alone.
    for name in ("selector", "manualSelector", "podFailurePolicy", "podReplacementPolicy"):
        spec.pop(name, None)
    template = spec["template"]
    given = (template.get("metadata") or {}).get("labels") or {}
    labels = {name: value for name, value in given.items() if "controller-uid" not in name and "job-name" not in name}
    labels["app.kubernetes.io/component"] = COMPONENT
    template["metadata"] = {"labels": labels}
    (container,) = template["spec"]["containers"]
    kept = [item for item in container.get("env") or () if item["name"] == "EXPECT_FILESYSTEM"]
    container["command"] = [PROGRAM, command]
    container["env"] = [*kept, *({"name": key, "value": value} for key, value in env.items())]
    spec.update(ttlSecondsAfterFinished=600, backoffLimit=0)
    name = f"jail-{command}-{secrets.token_hex(4)}"
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
    try:
        return run_document(kubectl, namespace, document, report)
    except BaseException:
        kubectl.run("delete", "job", name, "-n", namespace, "--ignore-not-found", "--wait=false", check=False)
        raise


def refuse_removed(kubectl: Kubectl, config: ClusterConfig) -> None:
    """Raise Refused where a Job still removes, or will, what the stack file names: its command was killed."""
    namespace = config.cluster.namespace
    for job in open_jobs(kubectl, namespace, COMPONENT):
        name, root = str(job["metadata"]["name"]), _env(job).get("ROOT")
        if name.startswith(REMOVING) and root in {config.jail.root, config.jail.carry_from} - {None}:
            raise Refused(
                f"the job {name} has not ended, and removes the root {root!r}, which the stack file names",
                hint=f"`kubectl delete job {name} -n {namespace}` stops it; `slurmstack jail list` shows whether the "
                "root is whole",
            )


def _env(job: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value") for item in container.get("env") or ()}


def users_of_roots(kubectl: Kubectl, namespace: str) -> dict[str, Counter[str]]:
    """Root -> component -> pods that lead into it, also those that are about to end."""
    used: dict[str, Counter[str]] = {}
    for pod in kubectl.items("pod", "-n", namespace):
        labels = pod["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/component") in {"login", "worker"}:
            root = root_of(pod["spec"])
            if root is not None:
                used.setdefault(root, Counter())[labels["app.kubernetes.io/component"]] += 1
    return used


def refuse_used(kubectl: Kubectl, config: ClusterConfig, namespace: str, name: str) -> None:
    """Raise Refused where anything leads into a root, would, or is being filled from it."""
    for key, value in (("jail.root", config.jail.root), ("jail.carry_from", config.jail.carry_from)):
        if value == name:
            raise Refused(
                f"the stack file names the root {name!r}: {key}", hint="change that, and `slurmstack up`, first"
            )
    pods = users_of_roots(kubectl, namespace).get(name)
    if pods:
        what = ", ".join(
            f"{count} {component} pod{'s' if count > 1 else ''}" for component, count in sorted(pods.items())
        )
        raise Refused(f"the root {name!r} is in use: {what}", hint="`slurmstack jail list` shows by whom")
    for workload in kubectl.items("statefulset,podtemplate", "-n", namespace):
        template = workload.get("template") or (workload.get("spec") or {}).get("template") or {}
        if root_of(template.get("spec") or {}) == name:
            raise Refused(f"pods of {workload['metadata']['name']} would lead into the root {name!r}")
    for job in open_jobs(kubectl, namespace, "jail"):
        env = _env(job)
        if name in {env.get(JAIL_ROOT), env.get("CARRY_FROM")}:
            raise Refused(f"{job['metadata']['name']} is filling a root and needs {name!r}", hint="wait for its end")


def refuse_root_of_plan(kubectl: Kubectl, config: ClusterConfig, planned: Plan, report: Report) -> None:
    """Before kubectl applies. Raises Refused."""
    login = ("StatefulSet", LOGIN)
    refuse_misfit(lambda: kubectl, config, planned.live.get(login), planned.wanted[login], report)


def refuse_root_of_engine(stack: Stack, planned: EnginePlan) -> None:
    """Before the engine applies. Raises Refused."""
    for change in planned.changes:
        if (change.kind, change.name) == ("StatefulSet", LOGIN) and change.action != "delete":
            was = None if change.before is None else change.before.inputs
            refuse_misfit(lambda: reach(stack), stack.config, was, change.resource.inputs, PlainReport(sys.stderr))


def refuse_misfit(
    kubectl: Callable[[], Kubectl],
    config: ClusterConfig,
    was: Mapping[str, Any] | None,
    will: Mapping[str, Any],
    report: Report,
) -> None:
    """Raise Refused if the root is there with another release of Slurm, or is to be filled from one that is not whole.

    Or while a Job removes one of the two. Only the volume knows, so it is looked at where root or release change.
    `was`, `will`: the login nodes' StatefulSet.
    """
    if was is None or (jail_root_of(was), release_of(was)) == (jail_root_of(will), release_of(will)):
        return
    cluster, namespace = kubectl(), config.cluster.namespace
    refuse_removed(cluster, config)
    written = ask(cluster, namespace, filling_job(cluster, namespace), report, "list")
    if reason := misfit(config, answer_in(written)):
        raise Refused(reason)


def misfit(config: ClusterConfig, roots: Iterable[Mapping[str, Any]]) -> str:
    """Why the stack cannot use the roots that there are as it says; empty if it can."""
    jail, release, known = config.jail, config.slurm.version, {item["name"]: item for item in roots}
    there = known.get(jail.root or "")
    if there is not None and there["whole"]:
        has = there["release"]
        if has and has != release:
            which = f"the root {jail.root!r}" if jail.root else "the first root"
            return (
                f"jail.root: {which} was filled with Slurm {has}, and slurm.version is {release}; set another "
                "jail.root, which is filled anew"
            )
        return ""
    if jail.carry:
        source = known.get(jail.carry_from or "")
        if source is None or not source["whole"]:
            which = f"root {jail.carry_from!r}" if jail.carry_from else "first root"
            return f"jail.carry_from: there is no {which} that is whole, so nothing can be carried; name another one"
    return ""
