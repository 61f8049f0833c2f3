"""Kubernetes machines that take no pod, and a Kubernetes that makes none: doctor says so of the worker that waits."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from local import processes
from tests.e2e import ill_workers
from tests.e2e.asking_doctor import await_nothing_found, doctor, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until

pytestmark = pytest.mark.disruptive

MACHINE = "node-1"
TAINT = "slurmstack-test/of-doctor=yes:NoSchedule"


@contextmanager
def tainted(slurm: SlurmOnKubernetes) -> Iterator[None]:
    slurm.kubectl.run("taint", "node", MACHINE, TAINT)
    try:
        yield
    finally:
        slurm.kubectl.run("taint", "node", MACHINE, f"{TAINT}-")


@contextmanager
def cordoned(slurm: SlurmOnKubernetes) -> Iterator[None]:
    slurm.kubectl.run("cordon", MACHINE)
    try:
        yield
    finally:
        slurm.kubectl.run("uncordon", MACHINE)


CLOSED: dict[str, tuple[Callable[[SlurmOnKubernetes], AbstractContextManager[None]], str]] = {
    "taint": (
        tainted,
        r"the machines have (the taint \{slurmstack-test/of-doctor: yes\}, which|a taint that) the pod does not .*",
    ),
    "cordon": (cordoned, r"the machines that may fit are cordoned"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_worker_whose_machine_is_closed_is_told_why(two_nodes: SlurmOnKubernetes, name: str) -> None:
    slurm, (closed, cause) = two_nodes, CLOSED[name]

    def told() -> bool:
        said = doctor(slurm, "node", "here-0")[0]["findings"]
        return bool(said) and bool(re.fullmatch(f"pod here-0 cannot be placed: {cause}", said[0]["cause"]))

    with closed(slurm):
        try:
            here = {"kubernetes.io/hostname": MACHINE}
            ill_workers.start(slurm, {"here": lambda pod: pod.update(nodeSelector=here)})
            wait_until(lambda: "here-0" in slurm.pods(), "the pod is there")
            wait_until(told, f"{cause} is told")
        finally:
            ill_workers.remove(slurm, ["here"])
    slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)


def test_a_pod_that_nobody_makes_again_is_told(two_nodes: SlurmOnKubernetes) -> None:
    """Kubernetes' controllers stand still."""
    slurm = two_nodes
    manager = processes.record_of("kube-controller-manager")
    assert manager is not None
    os.kill(manager.pid, signal.SIGSTOP)
    try:
        slurm.kubectl.run("delete", "pod", "default-1", "-n", slurm.namespace)
        assert first(slurm)["cause"] == "default-1 of StatefulSet default is not there"
    finally:
        os.kill(manager.pid, signal.SIGCONT)
    slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)
