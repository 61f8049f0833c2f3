"""Tests of nodes as real Slurm jobs: what they measure comes back, users never wait, a bad node is drained, and is back
in service when it was measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.sections.health import Health
from images.common.health.contract import Result, Status
from images.common.health.report import Finding, measured_in, with_measured
from slurm.health import watch_settings
from tests.slurm.asked import Asked
from tests.slurm.conftest import one_version
from tests.slurm.minimal import IN_JAIL, minimal_config
from tests.slurm.pod import LIBEXEC, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = [pytest.mark.soak, one_version]

CONF = "/var/spool/slurmctld/slurmstack/current/slurm.conf"
NODES = ("default-0", "default-1")
EXPECTED = 1000
SYSBENCH = """#!/bin/sh
# Plays sysbench: /run/slow has how fast this machine is, /run/long for how long it takes.
sleep $(cat /run/long 2>/dev/null || echo 0)
echo "CPU speed:"
echo "    events per second:  $(cat /run/slow 2>/dev/null || echo 5000.00)"
"""
SETTINGS = {
    "tests": ["cpu-speed"],
    "expected": {"default": {"cpu-speed": {"events": EXPECTED}}},
}


@dataclass(frozen=True, kw_only=True)
class Tested(Asked):
    """A cluster of two nodes."""

    def found(self, name: str) -> Finding | None:
        """The last result of cpu-speed."""
        return measured_in(str(self.node(name).get("extra", ""))).get("cpu-speed")

    def remember(self, name: str, record: Finding | None) -> None:
        """Put a result into the node's record, as an earlier run would have."""
        extra = with_measured("", {"cpu-speed": record} if record else {})
        self.sandbox.run(["scontrol", "update", f"nodename={name}", f"extra={extra}"])

    def await_forgotten(self) -> None:
        """Until slurmctld has forgotten all jobs: what is noted from now on is not corrected from them."""
        wait_until(lambda: not self.run("squeue --noheader --states=all"), "slurmctld has forgotten all jobs")


def prepare(pod: Pod) -> None:
    tool = pod.root / "usr/bin/sysbench"
    tool.write_text(SYSBENCH)
    tool.chmod(0o755)


@pytest.fixture(scope="module")
def cluster(slurm_version: str) -> Iterator[Tested]:
    """Two workers, the tests and the watcher."""
    scheduler = "SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=0"
    # slurmctld forgets jobs soon, so that results which a test takes away do not come back from there.
    config = minimal_config(slurm_version, f"{scheduler}\nMinJobAge=30\n", **IN_JAIL)
    with SlurmSandbox(slurm_version, config=config, workers=0) as sandbox:
        for name in NODES:
            sandbox.start_worker_on(name, before=prepare)
        sandbox.wait_for_nodes(len(NODES))
        controller = sandbox.controller
        path: Path = controller.root / "run/tests.json"
        path.write_text(json.dumps(SETTINGS))
        path.chmod(0o644)
        controller.start_program("health-tests", {"SLURM_CONF": CONF, "SETTINGS": "/run/tests.json"})
        alone = {"max_drained": 1, "machines": {"follow": False}, "tests": {"enabled": True}}
        watch = watch_settings(Health.model_validate(alone))
        controller.start_program("health-watch", {"SLURM_CONF": CONF, "SETTINGS": watch})
        yield Tested(sandbox=sandbox)


def test_a_user_s_job_ends_the_test_that_is_in_its_way(cluster: Tested) -> None:
    for name in NODES:
        wait_until(lambda: cluster.found(name) is not None, cluster.sandbox.logs)  # noqa: B023  used at once
    for name in NODES:
        (cluster.sandbox.pods[name].root / "run/long").write_text("600")
    cluster.await_forgotten()
    for name in NODES:
        cluster.remember(name, None)
    wait_until(lambda: bool(cluster.run("squeue --noheader --states=RUNNING --format=%j")), cluster.sandbox.logs)
    job = cluster.run("sbatch --parsable --exclusive --nodes=2 --chdir=/ --output=/dev/null --wrap 'sleep 2'")
    log = cluster.sandbox.controller.log
    wait_until(lambda: "end cpu-speed on" in log("health-tests"), cluster.sandbox.logs)
    for name in NODES:
        assert cluster.found(name) is None, "a test that was ended has not been"
        (cluster.sandbox.pods[name].root / "run/long").unlink()
    wait_until(lambda: "COMPLETED" in cluster.run(f"scontrol show job {job}"), cluster.sandbox.logs)
    for name in NODES:
        wait_until(lambda: cluster.found(name) is not None, cluster.sandbox.logs)  # noqa: B023


def test_a_node_that_is_too_slow_twice_is_drained_with_the_figures(cluster: Tested) -> None:
    (cluster.sandbox.pods["default-1"].root / "run/slow").write_text("212.50")
    cluster.await_forgotten()
    earlier = int(time.time()) - 600
    once = Result(status=Status.WARN, fault="hardware", message="events 213 events/s, measured once")
    cluster.remember("default-1", Finding(at=earlier, result=once))
    wait_until(lambda: "DRAIN" in cluster.node("default-1")["state"], cluster.sandbox.logs)
    reason = cluster.node("default-1")["reason"]
    assert reason.startswith("health/cpu-speed [hardware]: events 212.5 events/s (at least 1000 expected)"), reason
    assert "DRAIN" not in cluster.node("default-0")["state"]


BAD = "default-1"
BY_HAND = f"SETTINGS=/run/tests.json {LIBEXEC}/health-tests --node"


def test_by_hand_it_is_measured_again_and_is_back_in_service_and_no_user_had_it_before(cluster: Tested) -> None:
    root = cluster.sandbox.pods[BAD].root
    (root / "run/slow").unlink()
    (root / "run/long").write_text("6")
    ran = root / "run/ran"
    cluster.run(f"sbatch --nodelist={BAD} --chdir=/ --output=/dev/null --wrap 'date +%s > /run/ran'")  # a user's
    said = cluster.run(f"{BY_HAND} {BAD}")
    assert "ok cpu-speed: events 5000 events/s" in said
    assert f"{BAD} takes jobs" in said
    wait_until(lambda: ran.exists() and ran.read_text().strip().isdigit(), cluster.sandbox.logs)
    wait_until(
        lambda: (found := cluster.found(BAD)) is not None and found.result.status is Status.OK, cluster.sandbox.logs
    )
    record = cluster.found(BAD)
    assert record is not None
    assert int(ran.read_text()) >= record.at, "a user had the node while it was measured"
    assert "health-test" not in cluster.run("scontrol show reservation --oneliner")
    assert "MAINTENANCE" not in cluster.node(BAD)["state"], "what slurmctld ends by itself leaves it so"
    (root / "run/long").unlink()
