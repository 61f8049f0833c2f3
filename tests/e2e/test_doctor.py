"""`slurmstack doctor` on a real cluster: what is wrong is named first, with what mends it, and a whole one is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking_doctor import await_nothing_found, doctor, findings, first
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.stacks import dev

pytestmark = pytest.mark.watch


HUGE = {"size": 1, "resources": {"cpus": 500, "memory": "2Gi"}}


def test_a_whole_cluster_has_no_finding_and_each_part_was_read(two_nodes: SlurmOnKubernetes) -> None:
    assert findings(two_nodes) == []
    assert "2 Slurm nodes" in doctor(two_nodes)[0]["looked_at"]


def test_a_node_that_somebody_drained_is_named_with_who_and_why_until_the_command_it_gives(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm = two_nodes
    slurm.slurm("scontrol update nodename=default-1 state=drain reason='bad disk'")
    said = first(slurm)
    assert said["cause"] == "node default-1 is drained by root: bad disk"
    slurm.slurm(said["mend"].partition(" -- ")[2])
    slurm.await_idle("default-0", "default-1")
    assert findings(slurm) == []


def test_a_configuration_that_slurm_refuses_is_named_with_slurm_s_words(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    good = slurm.sections
    assert slurm.change("slurm.settings.KillWait", "soon", check=False).returncode == 1
    said = first(slurm)
    assert said["cause"] == "Slurm refuses its new configuration; the old one goes on"
    assert "KillWait" in said["evidence"][0]
    slurm.sections = good
    slurm.up()
    assert findings(slurm) == []


def test_a_worker_for_which_no_machine_has_room_is_named_with_what_is_short(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    before = slurm.sections
    pools = {**before["worker_nodes"], "huge": HUGE}
    main = {**before["partitions"]["main"], "pools": list(pools)}
    slurm.sections = {**before, "worker_nodes": pools, "partitions": {"main": main}}
    try:
        slurm.up()
        said = wait_until(lambda: findings(slurm), "something is found")[0]
        assert said["cause"].startswith("pod huge-0 cannot be placed: ")
        assert "Insufficient cpu" in said["cause"]
    finally:
        slurm.sections = before  # the next tests of the lane would wait for it
        slurm.up()


def test_a_controller_that_hangs_is_named_first_and_nothing_when_it_is_over(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    send = "for pid in /proc/[0-9]*; do [ $(cat $pid/comm) != slurmctld ] || kill -{} ${{pid#/proc/}}; done"
    slurm.slurm(send.format("STOP"))
    try:
        said = wait_until(lambda: findings(slurm), "something is found")
        assert said[0]["cause"] == "slurmctld does not answer", said
    finally:
        slurm.slurm(send.format("CONT"))
        slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)


@pytest.fixture
def going(local_kubernetes: None, tmp_path: Path) -> Iterator[SlurmOnKubernetes]:
    """A namespace that is being deleted, which slurmctld's pod holds."""
    namespace, hold = "e2e-going", "slurmstack-test/hold"
    slurm = SlurmOnKubernetes(
        engine="kubectl", directory=tmp_path, sections={**dev(), "cluster": {"namespace": namespace}}
    )
    labels = {"app.kubernetes.io/part-of": "slurmstack", "app.kubernetes.io/component": "controller"}
    metadata = {"name": "controller-0", "namespace": namespace, "labels": labels, "finalizers": [hold]}
    spec = {"containers": [{"name": "slurmctld", "image": "none"}], "nodeSelector": {hold: "nowhere"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    slurm.kubectl.run("create", "namespace", namespace)
    slurm.kubectl.run("create", "-f", "-", stdin=json.dumps(pod))
    slurm.kubectl.run("delete", "namespace", namespace, "--wait=false")
    yield slurm
    let_go = ("--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
    slurm.kubectl.run("patch", "pod", "controller-0", "-n", namespace, *let_go)
    wait_until(lambda: not slurm.kubectl.items("namespace", namespace), f"{namespace} is gone")


def test_of_a_namespace_that_is_being_deleted_it_says_that_alone_and_what_holds_it(going: SlurmOnKubernetes) -> None:
    done = slurmstack("doctor", "--config", str(going.file), check=False)
    assert done.returncode == 1, done
    told = done.stdout
    assert told.startswith("1. error: the namespace e2e-going is being deleted, with all that is in it, since "), told
    assert "its pods have to end first: controller-0\n" in told
    assert "wait until `kubectl get namespace e2e-going` finds none, then `slurmstack up`" in told
    assert "\n2. " not in told
