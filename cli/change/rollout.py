"""Waits until an apply has taken effect, as `pulumi up` would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cli.change.jobs import read_queue
from cli.change.plan import key
from cli.errors import Failure
from cli.kubectl.client import Kubectl, annotations_of, is_true
from cli.kubectl.jobs import statuses
from cli.program.recording import Manifest
from slurm.names import ACCOUNTING, IMAGES

POLL = 0.1
"""Seconds between the first two looks at the cluster."""

SLOWEST_POLL = 1.0
"""Seconds between two looks after a while: each is a process."""

Tell = Callable[[str], None]

ANSWERS = 60.0
"""Seconds in which slurmctld answers when its pod is ready."""

STUCK = 5.0
"""Seconds after which a pod of an older template that does not run is not on its way any more."""

PULLING = 30.0
"""Seconds after which a job ends the waiting whose image cannot be pulled: kubelet has tried three times by then."""

LOG_POLL = 5.0
"""Seconds between two looks at slurmdbd's log, whose program says every ten what a conversion does."""

CONVERTING = "converting the database"
"""How such a line begins (images/accounting/conversion.py)."""

_UNPULLED = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})

_AWAITED = frozenset({"Job", "Deployment", "StatefulSet"})
"""What is waited for."""

_JOB_UID = "batch.kubernetes.io/controller-uid"
"""The label with a Job's uid that Kubernetes gives to its pods."""

_PURPOSES: Mapping[str, str] = {
    "populate-jail": "filling the jail",
    "users": "making users",
    "config": "the Slurm configuration",
    "policy": "the policy",
    IMAGES: "starting the images",
}
"""What Jobs are for, by the begin of their names."""


def await_rollout(kubectl: Kubectl, objects: Sequence[Manifest], *, namespace: str, timeout: float, tell: Tell) -> None:
    """Return when all jobs have completed and all StatefulSets and Deployments are up to date and ready.

    Worker pools are not waited for: a leaving node may wait for its jobs for days. Raises Failure when a job fails,
    with the last lines of its log, or after `timeout` seconds, with what is still missing and why. The time in which
    slurmdbd converts its database does not count.
    """
    begun = time.monotonic()
    deadline, conversion = begun + timeout, _Conversion(kubectl, namespace)
    awaited = [
        item
        for item in objects
        if item.kind in _AWAITED and "pulumi.com/waitFor" not in annotations_of(item.document)  # else it is left alone
    ]
    kinds = ",".join(sorted({item.kind.lower() for item in awaited}))
    while True:
        found = {key(item): item for item in kubectl.items(kinds, "-n", namespace)} if kinds else {}
        missing = _missing(kubectl, namespace, awaited, found)
        if not missing:
            return
        if not any(name.startswith(f"{ACCOUNTING} ") for name in missing):
            conversion.words = ""
        else:
            deadline += conversion.seconds()
        tell("; ".join(filter(None, ("waiting for " + ", ".join(missing), conversion.words))))
        if time.monotonic() > deadline:
            raise _late(kubectl, namespace, f"after {timeout:.0f} s still not ready: {', '.join(missing)}")
        if time.monotonic() > begun + PULLING:
            _refuse_unpulled(kubectl, namespace, [item.name for item in awaited if item.kind == "Job"])
        if time.monotonic() > begun + STUCK:
            _end_stuck(kubectl, namespace, [item for item in found.values() if item["kind"] == "StatefulSet"])
        time.sleep(min(POLL + (time.monotonic() - begun) / 5, SLOWEST_POLL))


class _Conversion:
    """What slurmdbd says of the conversion of its database that it is in."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._logs = ("logs", f"{ACCOUNTING}-0", "-n", namespace, "-c", ACCOUNTING, f"--since={3 * LOG_POLL:.0f}s")
        self._looked = time.monotonic()
        self.words = ""
        """Its last ones; empty where it is in none."""

    def seconds(self) -> float:
        """Those since the last look in which it was in one. Most calls do not look."""
        passed = time.monotonic() - self._looked
        if passed < LOG_POLL:
            return 0.0
        self._looked += passed
        said = self._kubectl.run(*self._logs, check=False).stdout
        lines = [line for line in said.splitlines() if CONVERTING in line]
        self.words = lines[-1].partition(": ")[2] if lines else ""
        return passed if lines else 0.0


def _end_stuck(kubectl: Kubectl, namespace: str, sets: Iterable[dict[str, Any]]) -> None:
    """Delete pods of an older template that do not run, whose StatefulSets wait for them first, for ever.

    That is a known trait of those that start their pods in order: a version that does not start stays, also when the
    one before is applied again. One that runs is left alone, ready or not: slurmdbd may be converting its database.
    """
    newest = {
        item["metadata"]["name"]: item["status"].get("updateRevision")
        for item in sets
        if item["spec"].get("podManagementPolicy") == "OrderedReady" and unready([item])
    }
    for pod in kubectl.items("pod", "-n", namespace) if newest else []:
        metadata = pod["metadata"]
        owners = [newest[owner["name"]] for owner in metadata.get("ownerReferences", []) if owner["name"] in newest]
        containers = pod.get("status", {}).get("containerStatuses") or [{}]
        runs = all("running" in item.get("state", {}) for item in containers)
        if owners and metadata["labels"].get("controller-revision-hash") not in owners and not runs:
            kubectl.run("delete", "pod", metadata["name"], "-n", namespace, "--ignore-not-found", "--wait=false")


def _refuse_unpulled(kubectl: Kubectl, namespace: str, jobs: Sequence[str]) -> None:
    """Raise Failure if a job among these cannot have its image."""
    pods = kubectl.items("pod", "-n", namespace, "-l", f"job-name in ({', '.join(jobs)})") if jobs else []
    for pod in pods:
        for container in statuses(pod):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") in _UNPULLED:
                words = waiting.get("message", waiting["reason"])
                raise Failure(f"the image {container['image']} cannot be pulled: {words}")


def require_slurmctld(kubectl: Kubectl, namespace: str) -> None:
    """Raise Failure where slurmctld still does not answer: pods may be ready while no command works.

    For an update that began so; otherwise Slurm has answered already, and need not be asked again.
    """
    deadline = time.monotonic() + ANSWERS
    while True:
        try:
            read_queue(kubectl, namespace)
            return
        except Failure as failure:
            if time.monotonic() > deadline:
                raise Failure(
                    f"all is applied, but slurmctld does not answer: {failure}",
                    hint="`slurmstack status` shows why; docs/diagnose.md says where to look",
                ) from failure
        time.sleep(POLL)


def configuration_jobs(objects: Iterable[Manifest]) -> list[Manifest]:
    """The Jobs among some objects that end when Slurm has taken its new configuration, or has rejected it."""
    return [item for item in objects if item.kind == "Job" and item.name.rsplit("-", 1)[0] == "config"]


def _missing(
    kubectl: Kubectl, namespace: str, awaited: Sequence[Manifest], found: Mapping[tuple[str, str], dict[str, Any]]
) -> list[str]:
    """What has not yet taken effect of these Jobs and of what else has pods, for people. Raises Failure for a job."""
    running = []
    for job in (item for item in awaited if item.kind == "Job"):
        all_conditions = found.get(job.key, {}).get("status", {}).get("conditions", [])
        conditions = {item["type"]: item for item in all_conditions if item["status"] == "True"}
        if failed := conditions.get("Failed"):
            words = _last_words(kubectl, namespace, job.name) or failed.get("message", "")
            what = f"{_purpose(job.name)} failed: {words}"
            if failed.get("reason") == "DeadlineExceeded":  # it has waited in vain, for a pod as a rule
                raise _late(kubectl, namespace, what)
            raise Failure(what)
        if "Complete" not in conditions:
            running.append(job)
    worked = worked_jobs(kubectl, namespace, [found[job.key] for job in running if job.key in found])
    others = [item for item in awaited if item.kind != "Job"]
    return [
        *(_purpose(it.name) for it in running if found.get(it.key, {}).get("metadata", {}).get("uid") not in worked),
        *(f"{item.name} (deleted by somebody)" for item in others if item.key not in found),
        *unready([found[item.key] for item in others if item.key in found]),
    ]


def worked_jobs(kubectl: Kubectl, namespace: str, jobs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The uids of those of some Jobs of which a pod has done the work.

    Kubernetes takes up to 4 s more to end the pod's sidecar and to count the Job as complete.
    """
    open_to_it = {job["metadata"]["uid"] for job in jobs if not is_true(job, "Failed", "FailureTarget", "Suspended")}
    pods = kubectl.items("pod", "-n", namespace, "-l", _JOB_UID) if open_to_it else []
    return frozenset(uid for pod in pods if (uid := pod["metadata"]["labels"][_JOB_UID]) in open_to_it and _worked(pod))


def _worked(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended well, and nothing else has happened to it."""
    if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") == "Failed":
        return False
    containers = pod["status"].get("containerStatuses", [])
    codes = [container.get("state", {}).get("terminated", {}).get("exitCode") for container in containers]
    return bool(codes) and not any(code != 0 for code in codes)


def unready(items: Iterable[dict[str, Any]]) -> list[str]:
    """Those whose pods are not all ready, or not all of the newest template; Deployments with old pods, too."""
    missing = []
    for item in items:
        status, kind = item.get("status", {}), item["kind"]

        def count(name: str, status: Mapping[str, Any] = status) -> int:
            return int(status.get(name, 0))

        wanted, updated, old = int(item["spec"].get("replicas", 1)), count("updatedReplicas"), 0
        if kind == "Deployment":
            ready, old = min(count("availableReplicas"), updated), count("replicas") - updated
        else:
            # Workers go back to their first template: both names are then the same while other pods are still there.
            if status.get("currentRevision") == status.get("updateRevision"):
                updated = max(updated, count("currentReplicas"))
            ready = min(count("readyReplicas"), updated)
        seen = status.get("observedGeneration") == item["metadata"]["generation"]
        if not seen or old or ready < wanted:
            missing.append(f"{item['metadata']['name']} ({ready} of {wanted} ready)")
    return missing


def _purpose(job: str) -> str:
    """What a job is for, from its name."""
    return _PURPOSES.get(job.rsplit("-", 1)[0], job)


def _last_words(kubectl: Kubectl, namespace: str, job: str) -> str:
    """What the job's last pod said when it ended."""
    pods = kubectl.items("pod", "-n", namespace, "-l", f"job-name={job}")
    pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    for pod in reversed(pods):
        for container in reversed(statuses(pod)):
            message = container.get("state", {}).get("terminated", {}).get("message", "")
            if message:
                return str(message).strip()
    return ""


def _late(kubectl: Kubectl, namespace: str, what: str) -> Failure:
    """The failure where something took too long, with what pods say themselves: events and more are `doctor`'s."""
    reasons = []
    for pod in kubectl.items("pod", "-n", namespace):
        name, conditions = pod["metadata"]["name"], pod.get("status", {}).get("conditions", [])
        unplaced = [it for it in conditions if it["type"] == "PodScheduled" and it["status"] == "False"]
        reasons += [f"{name}: {condition.get('message', 'cannot be scheduled')}" for condition in unplaced]
        for container in statuses(pod):
            state = container.get("state", {})
            waits, ended = state.get("waiting", {}), state.get("terminated", {})
            is_on_its_way = waits.get("reason") in {"PodInitializing", "ContainerCreating"}
            if (waits and not is_on_its_way) or ended.get("exitCode"):
                problem = f"{waits.get('reason', 'has ended')} {waits.get('message', '')}".rstrip()
                last = (ended or container.get("lastState", {}).get("terminated", {})).get("message", "")
                lines = (f"  {line}" for line in str(last).strip().splitlines()[-4:])
                reasons += [f"{name}/{container['name']}: {problem}", *lines]
    hint = "`slurmstack doctor` says more; running this again continues to wait"
    return Failure("\n".join((what, *(f"  {reason}" for reason in reasons))), hint=hint)
