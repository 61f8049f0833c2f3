"""Jobs from the cluster's own suspended CronJobs: the stack says how their pods are, a command when one runs."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from cli.change.lock import be_interruptible
from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.kubectl.jobs import follow_job, make, open_jobs
from local.report import Report
from slurm.names import BACKUP, REHEARSE

JAIL_COPY = "backup-jail"
"""The container of a backup that saves the jail."""


class How(TypedDict, total=False):
    """How a Job is unlike its CronJob."""

    name: str
    """One of which there can be only one; an ended one of this name goes."""
    env: Mapping[str, str]
    """For all of its containers."""
    arguments: Sequence[str]
    """Of its last container's program, instead of those that it has."""
    without: Collection[str]
    """Containers that do not run. By their names: the CronJob may be of an older version than this command."""
    anywhere: bool
    """Not where slurmctld runs, which does not run now."""
    image: str
    """Of its containers, instead of that of the cluster's release."""


def run_job(kubectl: Kubectl, namespace: str, template: str, report: Report, **how: Unpack[How]) -> str:
    """Run a Job made from a CronJob to its end; returns what its containers wrote. Raises Failure.

    Interrupted, it ends.
    """
    be_interruptible()
    made = make_job(kubectl, namespace, template, **how)
    try:
        return follow_job(kubectl, namespace, made, report)
    except KeyboardInterrupt:  # nobody hears its answer any more, and a restore would wait for its end
        kubectl.run("delete", "job", made, "-n", namespace, "--ignore-not-found", "--wait=false", check=False)
        raise


def make_job(kubectl: Kubectl, namespace: str, template: str, **how: Unpack[How]) -> str:
    """Make a Job from a CronJob, as one of ours. Returns its name. Raises Failure."""
    found = kubectl.items("cronjob", template, "-n", namespace)
    if not found:
        raise Failure(
            "this cluster has no backups, or they are of an older version of slurmstack",
            hint="write slurmstack:backup into the stack file (docs/backups.md), then `slurmstack up`",
            code=USAGE,
        )
    if name := how.get("name"):
        kubectl.run("delete", "job", name, "-n", namespace, "--ignore-not-found", "--cascade=foreground")
    return make(kubectl, namespace, _job(found[0], **how))


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Names of Jobs of backups and restores that have not ended; a rehearsal has nothing of the cluster."""
    names = [str(job["metadata"]["name"]) for job in open_jobs(kubectl, namespace, BACKUP)]
    return [name for name in names if not name.startswith(f"{REHEARSE}-")]


def _job(template: Mapping[str, Any], **how: Unpack[How]) -> dict[str, Any]:
    env, source = how.get("env", {}), template["metadata"]
    made: dict[str, Any] = copy.deepcopy(template["spec"]["jobTemplate"])
    pod = made["spec"]["template"]["spec"]
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    chosen = [container for container in containers if container["name"] not in how.get("without", ())]
    for container in chosen:
        known = [item for item in container.get("env", []) if item["name"] not in env]
        container["env"] = [*known, *({"name": key, "value": value} for key, value in env.items())]
        container["image"] = how.get("image") or container["image"]
    if arguments := how.get("arguments"):
        chosen[-1]["command"] = [*chosen[-1]["command"][:-1], *arguments]
    pod["initContainers"], pod["containers"] = chosen[:-1], chosen[-1:]
    # A volume that no container has would still keep the pod to its machine.
    mounted = {mount["name"] for container in chosen for mount in container.get("volumeMounts", [])}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in mounted]
    if how.get("anywhere"):
        pod.pop("affinity", None)
    moment = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    metadata: dict[str, Any] = {"name": how.get("name") or f"{source['name']}-{moment}"}
    metadata["labels"] = (made.get("metadata") or {}).get("labels", {})
    if not {"without", "image", "name"} & how.keys() and "uid" in source:
        # As `kubectl create job --from`: the CronJob counts it for one of its own, so that alerts see its success.
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": source["name"], "uid": source["uid"]}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": made["spec"]}
