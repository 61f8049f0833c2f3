"""A controller that stands by, on the real Kubernetes: it comes, takes over, and goes, and the queue stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.kubectl.client import is_true
from slurm.names import CONTROLLER_HOST
from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.pod_processes import pids_of
from tests.stacks import dev

pytestmark = pytest.mark.watch

BOTH = {"controller-0", "controller-1"}


@pytest.fixture
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A cluster with one controller, whose volume another machine may have as well."""
    sections = dev() | {
        "cluster": {"namespace": "e2e-standby"},
        "controller": {"storage": "1Gi", "access_mode": "ReadWriteMany"},
    }
    with own_cluster(ENGINES[0], tmp_path_factory.mktemp("standby"), sections, "default-0", "default-1") as slurm:
        yield slurm


def controllers(slurm: SlurmOnKubernetes) -> set[str]:
    """Those that are ready."""
    pods = {name: pod for name, pod in slurm.pods().items() if name.startswith("controller-")}
    return {name for name, pod in pods.items() if is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]}


def led_to(slurm: SlurmOnKubernetes) -> list[str]:
    """Pods that the Service of slurmctld leads to."""
    of = f"kubernetes.io/service-name={CONTROLLER_HOST}"
    slices = slurm.kubectl.items("endpointslice", "-n", slurm.namespace, "-l", of)
    return [one["targetRef"]["name"] for item in slices for one in item["endpoints"] or ()]


def queue(slurm: SlurmOnKubernetes) -> list[str]:
    """As a user sees it; empty where slurmctld does not answer."""
    return sorted(slurm.ssh("timeout 10 squeue --noheader --format='%A %T'", check=False).splitlines())


def test_a_standby_comes_takes_over_and_goes_and_the_queue_stays(slurm: SlurmOnKubernetes) -> None:
    held = [slurm.submit("true", "--hold") for _ in range(5)]
    running = slurm.submit("until [ -e go ]; do sleep 0.2; done", "--no-requeue")
    slurm.await_job(running, "RUNNING")
    slurm.await_saved()
    jobs = sorted([*(f"{job} PENDING" for job in held), f"{running} RUNNING"])

    slurm.change("controller.standby", True)
    wait_until(lambda: controllers(slurm) == BOTH, lambda: f"both are ready: {controllers(slurm)}")
    wait_until(lambda: queue(slurm) == jobs, lambda: f"{jobs}: {queue(slurm)}")
    (active,) = slurm.active()
    assert led_to(slurm) == [active]

    uids = slurm.pod_uids()
    slurm.lose_pods(active)
    (other,) = BOTH - {active}
    wait_until(lambda: slurm.active() == led_to(slurm) == [other], lambda: f"{other} is active: {slurm.active()}")
    job = wait_until(
        lambda: slurm.ssh("timeout 10 sbatch --parsable --hold --wrap true", check=False), "it is accepted"
    )
    jobs = sorted([*jobs, f"{job.strip()} PENDING"])
    wait_until(lambda: queue(slurm) == jobs, lambda: f"{jobs}: {queue(slurm)}")
    uids_of_both = {uid for name, uid in [*uids.items(), *slurm.pod_uids().items()] if name in BOTH}
    wait_until(lambda: len(pids_of("slurmctld", uids_of_both)) == 1, "one slurmctld lives")
    wait_until(lambda: controllers(slurm) == BOTH, "another one stands by")

    slurm.change("controller.standby", False)
    wait_until(lambda: controllers(slurm) == {CONTROLLER_HOST}, "one is left")
    wait_until(lambda: queue(slurm) == jobs, lambda: f"{jobs}: {queue(slurm)}")
    slurm.ssh("touch go")
    slurm.await_job(running)
    slurm.await_job(slurm.submit("true"))
