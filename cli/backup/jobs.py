"""Jobs from the cluster's own suspended CronJobs: the stack says how their pods are, a command when one runs."""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from cli.errors import USAGE, Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, hint_after, is_true
from local.report import Report, Step
from slurm.names import BACKUP

POLL = 1.0
"""Seconds between two looks at a Job."""

STUCK = 900
"""Seconds without a container that runs, after which what Kubernetes complains about is an answer. A machine may have
to be made for it first, and an image to be pulled."""

SILENCE = 300
"""Seconds for which the API server may fail to answer, in hours of a Job."""


class ContainerFailed(Failure):
    """One of the Job's containers has failed; those behind it have not begun."""

    container = ""


class NotStarted(ContainerFailed):
    """The Job's pod could not start, and the Job is deleted: it has done nothing."""


class How(TypedDict, total=False):
    """How a Job is unlike its CronJob."""

    name: str
    """One of which there can be only one; an ended one of this name goes."""
    env: Mapping[str, str]
    """For all of its containers."""
    arguments: Sequence[str]
    """Of its last container's program, instead of those that it has."""
    only: Collection[str]
    """The containers that run; default: all."""
    anywhere: bool
    """Not where slurmctld runs, which does not run now."""


def run_job(kubectl: Kubectl, namespace: str, template: str, report: Report, **how: Unpack[How]) -> str:
    """Run a Job made from a CronJob to its end; returns what its containers wrote. Raises Failure.

    Interrupted, it ends.
    """
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
            "this cluster has no backups",
            hint="write slurmstack:backup into the stack file (docs/backups.md), then `slurmstack up`",
            code=USAGE,
        )
    document = _job(found[0], **how)
    _refuse_without_secret(kubectl, namespace, document)
    if name := how.get("name"):
        kubectl.run("delete", "job", name, "-n", namespace, "--ignore-not-found", "--cascade=foreground")
    return _make(kubectl, namespace, document)


def run_document(kubectl: Kubectl, namespace: str, document: dict[str, Any], report: Report) -> str:
    """Make a Job, and wait for its end; returns what its containers wrote. Raises Failure."""
    return follow_job(kubectl, namespace, _make(kubectl, namespace, document), report)


def _make(kubectl: Kubectl, namespace: str, document: dict[str, Any]) -> str:
    kubectl.run("create", f"--field-manager={FIELD_MANAGER}", "-n", namespace, "-f", "-", stdin=as_list([document]))
    return str(document["metadata"]["name"])


def follow_job(kubectl: Kubectl, namespace: str, name: str, report: Report) -> str:
    """Wait for a Job's end; returns what its containers wrote. Raises Failure."""
    with report.step(f"Job {name}") as step:
        return _Following(kubectl, namespace, name, step).to_its_end()


def running_jobs(kubectl: Kubectl, namespace: str) -> list[str]:
    """Names of Jobs of backups and restores that have not ended."""
    return [str(job["metadata"]["name"]) for job in open_jobs(kubectl, namespace, BACKUP)]


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
    env, only = how.get("env", {}), how.get("only", ())
    made: dict[str, Any] = copy.deepcopy(template["spec"]["jobTemplate"])
    pod = made["spec"]["template"]["spec"]
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    chosen = [container for container in containers if not only or container["name"] in only]
    for container in chosen:
        known = [item for item in container.get("env", []) if item["name"] not in env]
        container["env"] = [*known, *({"name": key, "value": value} for key, value in env.items())]
    if arguments := how.get("arguments"):
        chosen[-1]["command"] = [*chosen[-1]["command"][:-1], *arguments]
    pod["initContainers"], pod["containers"] = chosen[:-1], chosen[-1:]
    # A volume that no container has would still keep the pod to its machine.
    mounted = {mount["name"] for container in chosen for mount in container.get("volumeMounts", [])}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in mounted]
    if how.get("anywhere"):
        pod.pop("affinity", None)
    moment = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": how.get("name") or f"{template['metadata']['name']}-{moment}",
            "labels": (made.get("metadata") or {}).get("labels", {}),
        },
        "spec": made["spec"],
    }


def _refuse_without_secret(kubectl: Kubectl, namespace: str, job: Mapping[str, Any]) -> None:
    volumes = job["spec"]["template"]["spec"]["volumes"]
    (name,) = [item["secret"]["secretName"] for item in volumes if item["name"] == "repository"]
    if not kubectl.items("secret", name, "-n", namespace):
        raise Failure(
            f"backup.credentials_secret: there is no Secret {name} in the namespace {namespace}",
            hint="make it with access-key-id, secret-access-key and password; docs/backups.md has the command",
        )


class _Following:
    """A Job on its way to its end, which may take hours: an API server that is away for minutes does not end it."""

    def __init__(self, kubectl: Kubectl, namespace: str, name: str, step: Step) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._name = name
        self._step = step
        self._written: dict[str, str] = {}
        self._made = time.monotonic()
        self._has_begun = False
        """Whether a container of it has run: its pod may be gone since, and Kubernetes not have said so of the Job."""

    def to_its_end(self) -> str:
        heard, complete_since = time.monotonic(), None
        while True:
            try:
                (job,) = self._kubectl.items("job", self._name, "-n", self._namespace) or [{}]
                pods = self._kubectl.items("pod", "-n", self._namespace, "-l", f"job-name={self._name}")
                self._see_whether_begun(pods)
            except Failure as failure:
                if time.monotonic() - heard > SILENCE:
                    failure.hint = f"the job {self._name} goes on in the cluster meanwhile"
                    raise
                time.sleep(POLL)
                continue
            heard = time.monotonic()
            if not job:
                raise Failure(f"somebody has deleted the job {self._name}")
            all_read = self._read(pods)
            if is_true(job, "Complete"):
                complete_since = complete_since or heard
                # Its machine may be lost, and the log with it.
                if all_read or not pods or heard - complete_since > SILENCE:
                    return "".join(self._written.values())
            if is_true(job, "Failed"):
                raise Failure(f"the job {self._name} failed: {_reason(job)}")
            self._refuse_kept()
            time.sleep(POLL)

    def _see_whether_begun(self, pods: Collection[Mapping[str, Any]]) -> None:
        if not all("waiting" in status.get("state", {}) for pod in pods for status in statuses(pod)):
            self._has_begun = True
        elif not self._has_begun:
            self._step.progress(0, 0, self._complaint() or "its pod starts")

    def _complaint(self) -> str:
        """What Kubernetes complains about, of a pod that has not begun: its machine, its volumes, its image."""
        warnings = self._kubectl.items("event", "-n", self._namespace, "--field-selector=type=Warning")
        said = [str(item.get("message")) for item in warnings if item["involvedObject"]["name"].startswith(self._name)]
        return said[-1] if said else ""

    def _refuse_kept(self) -> None:
        """Raise NotStarted where Kubernetes complains about the pod for long, and delete the Job."""
        if self._has_begun or time.monotonic() - self._made <= STUCK:
            return
        place = ("-n", self._namespace)
        (job,) = self._kubectl.items("job", self._name, *place) or [{}]
        if {"failed", "uncountedTerminatedPods"} & {key for key, value in job.get("status", {}).items() if value}:
            return  # its pod has begun and is gone, which Kubernetes is about to say
        if said := self._complaint():
            self._kubectl.run("delete", "job", self._name, *place, "--ignore-not-found", "--cascade=foreground")
            raise NotStarted(f"the pod of {self._name} did not start: {said}")

    def _read(self, pods: Collection[Mapping[str, Any]]) -> bool:
        """Take what containers that have ended wrote; whether all are read. Raises Failure where one has failed."""
        complete = True
        for pod in pods:
            for status in statuses(pod):
                container, state = status["name"], status.get("state", {})
                if "running" in state:
                    self._step.progress(0, 0, container)
                if container in self._written or "terminated" not in state:
                    continue
                place = ("-n", self._namespace, pod["metadata"]["name"], "-c", container)
                done = self._kubectl.run("logs", *place, check=False)
                _refuse_failed(container, state["terminated"], done.stdout)
                if done.returncode == 0:
                    self._written[container] = done.stdout
                complete = complete and done.returncode == 0
        return complete


def _refuse_failed(container: str, ended: Mapping[str, Any], written: str) -> None:
    if ended.get("exitCode") == 0:
        return
    told = ended.get("message") or written or f"ended with {ended.get('exitCode')} ({ended.get('reason')})"
    errors = [line.partition(": error: ")[2] for line in told.splitlines() if ": error: " in line]
    said = "\n".join(errors) or told.strip().splitlines()[-1]
    failure = ContainerFailed(f"{container}: {said}", hint=hint_after(said, ""))
    failure.container = container
    raise failure


def _reason(job: Mapping[str, Any]) -> str:
    told = [item for item in job["status"].get("conditions", []) if item["type"] == "Failed"]
    return str(told[0].get("message") or told[0].get("reason")) if told else "no reason is told"
