"""Jobs from the cluster's own suspended CronJobs: the stack says how their pods are, a command when one runs."""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from cli.change.lock import be_interruptible
from cli.errors import USAGE, Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, hint_after, is_true
from local.report import Report
from slurm.names import BACKUP, REHEARSE

POLL = 1.0
"""Seconds between two looks at a Job."""

STUCK = 900
"""Seconds without a container that has begun, after which what Kubernetes complains about is an answer. A machine may
have to be made for it first, and an image to be pulled."""

SILENCE = 300
"""Seconds for which the API server may fail to answer, in hours of a Job."""


JAIL_COPY = "backup-jail"
"""The container of a backup that saves the jail."""


class JobFailed(Failure):
    """A container of the Job has failed; those behind it have not begun. Without one: none has begun at all."""

    container = ""


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
    document = _job(found[0], **how)
    volumes = document["spec"]["template"]["spec"]["volumes"]
    (secret,) = [item["secret"]["secretName"] for item in volumes if item["name"] == "repository"]
    if not kubectl.items("secret", secret, "-n", namespace):
        raise Failure(
            f"backup.credentials_secret: there is no Secret {secret} in the namespace {namespace}",
            hint="make it with access-key-id, secret-access-key and password; docs/backups.md has the command",
        )
    if name := how.get("name"):
        kubectl.run("delete", "job", name, "-n", namespace, "--ignore-not-found", "--cascade=foreground")
    return _make(kubectl, namespace, document)


def run_document(kubectl: Kubectl, namespace: str, document: dict[str, Any], report: Report) -> str:
    """Make a Job, and wait for its end; returns what its containers wrote. Raises Failure."""
    return follow_job(kubectl, namespace, _make(kubectl, namespace, document), report)


def _make(kubectl: Kubectl, namespace: str, document: dict[str, Any]) -> str:
    kubectl.run("create", f"--field-manager={FIELD_MANAGER}", "-n", namespace, "-f", "-", stdin=as_list([document]))
    return str(document["metadata"]["name"])


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Names of Jobs of backups and restores that have not ended; a rehearsal has nothing of the cluster."""
    names = [str(job["metadata"]["name"]) for job in open_jobs(kubectl, namespace, BACKUP)]
    return [name for name in names if not name.startswith(f"{REHEARSE}-")]


def open_jobs(kubectl: Kubectl, namespace: str, component: str) -> list[dict[str, Any]]:
    """The component's Jobs that have not ended."""
    found = kubectl.items("job", "-n", namespace, "-l", f"app.kubernetes.io/component={component}")
    return [job for job in found if not is_true(job, "Complete", "Failed")]


def answer_in(written: str) -> Any:
    """What a Job's program has printed in its last line, which is JSON. Raises Failure where its log is lost."""
    try:
        return json.loads(written.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Failure("the log of the job that has looked is lost", hint="run this again") from None


def statuses(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of all containers of a pod."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _job(template: Mapping[str, Any], **how: Unpack[How]) -> dict[str, Any]:
    env = how.get("env", {})
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
    metadata = {
        "name": how.get("name") or f"{template['metadata']['name']}-{moment}",
        "labels": (made.get("metadata") or {}).get("labels", {}),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": made["spec"]}


def follow_job(kubectl: Kubectl, namespace: str, name: str, report: Report) -> str:
    """Wait for a Job's end, which may take hours; returns what its containers wrote. Raises Failure.

    An API server that is away for minutes does not end it.
    """
    place, begun, has_begun = ("-n", namespace), time.monotonic(), False
    heard_at = begun
    with report.step(f"Job {name}") as step:
        while True:
            try:
                (job,) = kubectl.items("job", name, *place) or [{}]
                pods = kubectl.items("pod", *place, "-l", f"job-name={name}")
                found = [status for pod in pods for status in statuses(pod)]
                has_begun = has_begun or any("waiting" not in status.get("state", {}) for status in found)
                complaint = "" if has_begun else _complaint_of(kubectl, namespace, name)
                heard_at = time.monotonic()
            except Failure as failure:
                if time.monotonic() - heard_at > SILENCE:
                    failure.hint = f"the job {name} goes on in the cluster meanwhile"
                    raise
                time.sleep(POLL)
                continue
            if not job:
                raise Failure(f"somebody has deleted the job {name}")
            for status in found:
                _refuse_failed(status)
            if is_true(job, "Complete"):  # its machine may be lost, and the log with it
                pod = [str(each["metadata"]["name"]) for each in pods[-1:]]
                return kubectl.run("logs", *pod, *place, "--all-containers", check=False).stdout if pod else ""
            if is_true(job, "Failed"):
                conditions = [item for item in job["status"]["conditions"] if item["type"] == "Failed"]
                raise Failure(f"the job {name} failed: {conditions[0].get('message') or conditions[0].get('reason')}")
            if complaint and time.monotonic() - begun > STUCK:
                kubectl.run("delete", "job", name, *place, "--ignore-not-found", "--cascade=foreground")
                raise JobFailed(f"the pod of {name} did not start: {complaint}")
            running = [str(status["name"]) for status in found if "running" in status.get("state", {})]
            step.progress(0, 0, *running[:1] or [complaint or "its pod starts"])
            time.sleep(POLL)


def _complaint_of(kubectl: Kubectl, namespace: str, job: str) -> str:
    """What Kubernetes complains about, of a Job's pod that does not run: its machine, its volumes, its image."""
    warnings = kubectl.items("event", "-n", namespace, "--field-selector=type=Warning")
    messages = [str(item.get("message")) for item in warnings if item["involvedObject"]["name"].startswith(job)]
    return messages[-1] if messages else ""


def _refuse_failed(status: Mapping[str, Any]) -> None:
    """Raise JobFailed where a container has, with the errors among its last words."""
    ended = status.get("state", {}).get("terminated", {"exitCode": 0})
    if ended.get("exitCode") == 0:
        return
    message = str(ended.get("message") or f"ended with {ended.get('exitCode')} ({ended.get('reason')})")
    errors = [line.partition(": error: ")[2] for line in message.splitlines() if ": error: " in line]
    reason = "\n".join(errors) or message.strip().splitlines()[-1]
    failure = JobFailed(f"{status['name']}: {reason}", hint=hint_after(reason, ""))
    failure.container = status["name"]
    raise failure
