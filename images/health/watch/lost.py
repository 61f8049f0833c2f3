"""Pods whose machine is proven to be dead are deleted by force, so that Kubernetes starts them elsewhere.

Kubernetes starts no second pod of a StatefulSet while the first one may still run: that of a lost machine stays in
Terminating. What proves that it does not run:

its Node object is gone    a cloud's controller, an autoscaler or a person has deleted it
out-of-service             a taint with which a person says so
shutdown                   a taint of a cloud's controller that has asked the cloud

Kubernetes itself acts on the first two, after up to two minutes. A machine that is merely silent is never taken for
dead. slurmctld is not asked: it may be what is lost.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Final, NoReturn

from images.common.kubernetes import Kube, KubeError
from images.health.watch.machines import Machine, Machines, Place

LOOK_SECONDS: Final = 2.0


def keep_ending_lost(kube: Kube, machines: Machines, log: Callable[[str], None]) -> NoReturn:
    """Look for ever. For a thread."""
    logged = ""
    while True:
        try:
            end_lost(kube, machines, log)
            logged = ""
        except KubeError as error:
            if str(error) != logged:
                log(logged := str(error))
        time.sleep(LOOK_SECONDS)


def end_lost(kube: Kube, machines: Machines, log: Callable[[str], None]) -> None:
    """Delete the pods of dead machines. Raises KubeError."""
    if not machines.synced:
        return
    # First the pods: a pod of a machine that has just come is in no older copy of these.
    pods, nodes = machines.pods.values(), machines.nodes.values()
    for name, place in pods.items():
        why = _proof(kube, place, nodes.get(place.node)) if place.node else ""
        if why:
            log(f"pod {name} is deleted by force, as its machine {place.node} is dead: {why}")
            kube.delete_pod(name, place.uid, force=True)


def _proof(kube: Kube, place: Place, machine: Machine | None) -> str:
    """Why a pod is known not to run any more; empty: it may."""
    if machine is not None:
        return "" if machine.ready == "True" else machine.dead
    try:
        kube.get(f"/api/v1/nodes/{place.node}")
    except KubeError as error:
        if error.status == http.client.NOT_FOUND:
            return "Kubernetes has no such Node any more"
        raise
    return ""
