"""After nodes were started again: waits until the API server no longer tells of containers that ended with them.

A kubelet corrects its pods' statuses one by one after its start. Until then the API server shows what it kept from
before a crash or a reset: pods that are Ready, at addresses that meanwhile may belong to others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from local import nodes, paths
from local.api import Api, ApiUnreachableError
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local.controlplane import Setup
    from local.report import Step

_TRUE_S = 90
_POLL_S = 0.2


def await_true_pods(
    setup: Setup, names: Iterable[str], api: Api, step: Step, require_daemons: Callable[[Setup], None]
) -> None:
    """Return when each container that the API server calls running does run on these nodes.

    `require_daemons` is asked at each look: a kubelet that ended just after its start can still have been taken for
    Ready, where the one before it had said so in the same second.

    Raises `LocalError` after 90 s.
    """
    deadline = time.monotonic() + _TRUE_S
    wanted = list(names)
    while True:
        running = {name: nodes.running_containers(setup, name) for name in wanted}
        try:
            untrue = untrue_pods(api.get("/api/v1/pods")["items"], running)
        except ApiUnreachableError:
            untrue = ["not known: the API server does not answer"]
        if not untrue:
            return
        step.progress(0, 0, f"{len(untrue)} pods to be started again")
        require_daemons(setup)
        if time.monotonic() > deadline:
            msg = f"pods that ran before were not started again within {_TRUE_S} s: {', '.join(untrue[:10])}"
            raise LocalError(msg, f"look at: kubectl --kubeconfig {paths.kubeconfig()} get pods -A")
        time.sleep(_POLL_S)


def untrue_pods(pods: Iterable[Mapping[str, Any]], running: Mapping[str, frozenset[str]]) -> list[str]:
    """Pods (`NAMESPACE/NAME`) whose status has a container as running that is not in `running`, by node."""
    found = []
    for pod in pods:
        there = running.get(pod["spec"].get("nodeName", ""))
        if there is not None and not _claimed(pod) <= there:
            found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return sorted(found)


def _claimed(pod: Mapping[str, Any]) -> frozenset[str]:
    status = pod.get("status", {})
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return frozenset(
        str(item.get("containerID", "")).rpartition("/")[2] for item in containers if "running" in item.get("state", {})
    )
