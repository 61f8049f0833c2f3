"""An elastic pool under random events: whatever happens, in whatever order, no job is lost and no node or pod is stuck.

`SLURMSTACK_SEED`, `SLURMSTACK_EVENTS` (tests/elastic_events.py) and `SLURMSTACK_VERSION` (of Slurm) choose others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from config import load_config
from tests import elastic_events
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import VERSIONS
from tests.slurm.elastic import CONF, ElasticSandbox, elastic_config
from tests.slurm.pod import wait_until
from tests.stacks import existing, with_change

pytestmark = pytest.mark.soak

VERSION = os.environ.get("SLURMSTACK_VERSION", VERSIONS[0])
EVENTS = elastic_events.events(200)
SETTLE_EVERY = 50


class World(elastic_events.World):
    """With real daemons, and a played Kubernetes."""

    def __init__(self, elastic: ElasticSandbox) -> None:
        super().__init__("gpu")
        self.elastic = elastic
        self.more, self.names = Random(elastic_events.SEED), Random(elastic_events.SEED)
        """For what was added to events later: those of a seed stay the same."""

    def slurm(self, command: str) -> str:
        done = self.elastic.run(command)
        return done.stdout + done.stderr

    def sbatch(self, options: str, script: str) -> str:
        """Now and then for a node by its name."""
        if options.endswith("--nodes=1") and self.names.random() < 0.25:
            options += f" --nodelist={self.names.choice(self.nodes)}"
        return self.slurm(f"sbatch {options} --wrap '{script}'")

    def states(self) -> dict[str, str]:
        return self.elastic.states()

    def pods(self) -> dict[str, dict[str, Any]]:
        return self.elastic.elastic_pods()

    def lose(self, pod: str) -> None:
        self.elastic.lose(pod)

    def ask_to_leave(self, pod: str) -> None:
        self.elastic.ask_to_leave(pod)

    def set_pool(self, **changes: Any) -> None:
        self.elastic.set_pool(**changes)

    def said(self) -> str:
        return self.elastic.said()

    def wait_until(self, condition: Callable[[], bool], what: Callable[[], str], timeout: float) -> None:
        """However long: what is stuck stays so."""
        del timeout
        wait_until(condition, what)

    def heal(self) -> None:
        self.elastic.machines = 100
        super().heal()

    def weights(self) -> Mapping[Callable[[], str], int]:
        more = {
            self.fewer_machines: 8, self.more_machines: 12, self.restart_elastic: 6, self.restart_slurmctld: 3,
            self.kill_slurmctld: 1, self.api_away: 3,
        }  # fmt: skip
        return {**super().weights(), **more}

    def end_machine(self) -> str:
        """Of a preemptible machine or not."""
        self.elastic.preemptible = self.more.choice([True, False])
        said = super().end_machine()
        return f"{said}{', with its jobs back to the queue' if self.elastic.preemptible else ''}"

    def fewer_machines(self) -> str:
        self.elastic.machines = self.random.randint(0, 2)
        return str(self.elastic.machines)

    def more_machines(self) -> str:
        self.elastic.machines = 100
        return ""

    def restart_elastic(self) -> str:
        self.elastic.run("pkill -KILL -f libexec/slurmstack/elastic")
        self.elastic.start_elastic()
        return ""

    def restart_slurmctld(self) -> str:
        self._restart("TERM")
        return ""

    def kill_slurmctld(self) -> str:
        time.sleep(6)  # what slurmctld has accepted in the last five seconds it may not have written yet
        self._restart("KILL")
        return ""

    def _restart(self, signal: str) -> None:
        self.elastic.run(f"pkill -{signal} -x slurmctld")
        wait_until(lambda: self.elastic.run("pgrep -x slurmctld").returncode != 0, "slurmctld has ended")
        self.elastic.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in self.elastic.run("scontrol ping").stdout, "slurmctld answers")

    def resize(self) -> str:
        """With another configuration of the nodes, now and then."""
        most, least = self.random.randint(1, self.most), self.random.choice([0, 0, 1])
        conf = self.random.choice(["", " Weight=7"])
        limit = self.more.choice([None, None, 0, 1, most])
        now = {"name": "now", "days": [*range(7)], "begin": 0, "end": 1440, "min": 0, "max": limit}
        self.set_pool(max=most, min=least, conf=f"{CONF}{conf}", windows=[] if limit is None else [now])
        self.limit = most if limit is None else limit
        return f"max {most}, min {least}{conf}, in a window max {limit}"

    def api_away(self) -> str:
        assert self.elastic.api is not None
        self.elastic.api.down = True
        time.sleep(self.random.choice([0.5, 3]))
        self.elastic.api.down = False
        return ""


@pytest.fixture
def world(own_cluster: ClusterFactory, slurm_version: str) -> World:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "10s", "resume_timeout": "30s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections))
    text = (
        config["slurm.conf"]
        .replace("SuspendTime=10 ", "SuspendTime=2 ")
        .replace("ResumeTimeout=30", "ResumeTimeout=15")
    )
    config["slurm.conf"] = f"{text}MinJobAge=86400\n"  # to know of each job how it has ended
    elastic = own_cluster(slurm_version, kind=ElasticSandbox, config=config)
    return World(elastic)


@pytest.mark.timeout(900 + 5 * EVENTS)
@pytest.mark.parametrize("slurm_version", [VERSION], indirect=True)
def test_whatever_happens_no_job_is_lost_and_no_node_or_pod_is_stuck(world: World) -> None:
    world.run(EVENTS, settle_every=SETTLE_EVERY)
