"""Jobs that a command makes, and waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, hint_after, is_true
from local.report import Report

POLL = 1.0
"""Seconds between two looks at a Job."""

STUCK = 900
"""Seconds without a container that has begun, after which what Kubernetes complains about is an answer. A machine may
have to be made for it first, and an image to be pulled."""

SILENCE = 300
"""Seconds for which the API server may fail to answer, in hours of a Job."""


class NotBegunError(Failure):
    """No container of the Job has begun, and none will."""


def run_document(kubectl: Kubectl, namespace: str, document: dict[str, Any], report: Report) -> str:
    """Make a Job, and wait for its end; returns what its containers wrote. Raises Failure."""
    return follow_job(kubectl, namespace, make(kubectl, namespace, document), report)


def make(kubectl: Kubectl, namespace: str, document: dict[str, Any]) -> str:
    """Make a Job, as one of ours; returns its name. Raises Failure."""
    kubectl.run("create", f"--field-manager={FIELD_MANAGER}", "-n", namespace, "-f", "-", stdin=as_list([document]))
    return str(document["metadata"]["name"])


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
                lacks = _lacks(found)
                complaint = lacks or ("" if has_begun else _complaint_of(kubectl, namespace, name))
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
            if lacks or (complaint and time.monotonic() - begun > STUCK):
                kubectl.run("delete", "job", name, *place, "--ignore-not-found", "--cascade=foreground")
                hint = "docs/backups.md has the command that makes the Secret" if lacks else ""
                raise NotBegunError(f"the pod of {name} did not start: {complaint}", hint=hint)
            running = [str(status["name"]) for status in found if "running" in status.get("state", {})]
            step.progress(0, 0, *running[:1] or [complaint or "its pod starts"])
            time.sleep(POLL)


def _lacks(found: Sequence[Mapping[str, Any]]) -> str:
    """The Secret, or the key of it, without which a container cannot start."""
    waiting = [status.get("state", {}).get("waiting", {}) for status in found]
    words = [str(each.get("message")) for each in waiting if each.get("reason") == "CreateContainerConfigError"]
    return next((each for each in words if "not found" in each or "find key" in each), "")


def _complaint_of(kubectl: Kubectl, namespace: str, job: str) -> str:
    """What Kubernetes complains about, of a Job's pod that does not run: its machine, its volumes, its Secret."""
    warnings = kubectl.items("event", "-n", namespace, "--field-selector=type=Warning")
    messages = [str(item.get("message")) for item in warnings if item["involvedObject"]["name"].startswith(job)]
    return messages[-1] if messages else ""


def _refuse_failed(status: Mapping[str, Any]) -> None:
    """Raise Failure where a container has ended so, with the errors among its last words."""
    ended = status.get("state", {}).get("terminated", {"exitCode": 0})
    if ended.get("exitCode") == 0:
        return
    message = str(ended.get("message") or f"ended with {ended.get('exitCode')} ({ended.get('reason')})")
    errors = [line.partition(": error: ")[2] for line in message.splitlines() if ": error: " in line]
    reason = "\n".join(errors) or message.strip().splitlines()[-1]
    raise Failure(f"{status['name']}: {reason}", hint=hint_after(reason, ""))
