"""What is in the jail's volume, from a Job made as the one that fills it, and which root a pod leads into."""

from __future__ import annotations

import copy
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from cli.backup.jobs import open_jobs, run_document
from cli.errors import Failure, Refused
from cli.kubectl.client import Kubectl
from config.cluster import ClusterConfig
from local.report import Report
from slurm.names import JAIL_DIR, JAIL_ROOT, JAIL_ROOTS

POPULATE = "populate-jail"
"""Beginning of the name of the Job that fills a root."""

REMOVING = "jail-remove-"
"""Beginning of the name of a Job that removes one."""

PROGRAM = "/usr/libexec/slurmstack/roots"
COMPONENT = "jail-roots"

FIRST = "first"
"""The root without a name, for people. No root can be called so."""


def root_of(pod: Mapping[str, Any]) -> str | None:
    """Name of the root that a pod's specification leads into; empty: the first one; None: it leads into none."""
    for container in pod.get("containers") or ():
        for item in container.get("volumeMounts") or ():
            if item.get("mountPath") == JAIL_DIR:
                found = re.fullmatch(rf"{re.escape(JAIL_ROOTS)}/([^/]+)/root", str(item.get("subPath") or ""))
                return found.group(1) if found else ""
    return None


def filling_job(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    """The Job of the cluster that has filled its jail. Raises Failure."""
    found = kubectl.items("job", "-n", namespace, "-l", "app.kubernetes.io/component=jail")
    jobs = [item for item in found if str(item["metadata"]["name"]).startswith(POPULATE)]
    if not jobs:
        raise Failure("this cluster has no jail yet", hint="`slurmstack up` makes one")
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
        with suppress(Failure):  # the cluster does not answer; `up` looks for what is left (refuse_removed)
            end_open(kubectl, namespace, name)
        raise


def end_open(kubectl: Kubectl, namespace: str, beginning: str = REMOVING) -> None:
    """Delete Jobs with such names that have not ended, with their pods. Raises Failure."""
    for job in _open(kubectl, namespace, beginning):
        name = str(job["metadata"]["name"])
        kubectl.run("delete", "job", name, "-n", namespace, "--ignore-not-found", "--cascade=foreground")


def refuse_removed(kubectl: Kubectl, config: ClusterConfig) -> None:
    """Raise Refused where a Job still removes, or will, what the stack file names: its command was killed."""
    for job in _open(kubectl, config.cluster.namespace, REMOVING):
        env = _env(job)
        if env.get("ROOT") in {config.jail.root, config.jail.carry_from} - {None}:
            name = job["metadata"]["name"]
            raise Refused(
                f"the job {name} has not ended, and removes the root {env['ROOT']!r}, which the stack file names",
                hint=f"`kubectl delete job {name} -n {config.cluster.namespace}` stops it; `slurmstack jail list` "
                "shows whether the root is whole",
            )


def _open(kubectl: Kubectl, namespace: str, beginning: str) -> list[dict[str, Any]]:
    found = open_jobs(kubectl, namespace, COMPONENT)
    return [item for item in found if str(item["metadata"]["name"]).startswith(beginning)]


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
