"""The stand-in for slurmctld is asked what a real one is asked, and has to say the same where our programs look."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from images.common.command import Result, Runner
from images.common.slurm_node import WANTED_NODES
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import IMPATIENT
from tests.slurm.pod import HANG_SECONDS, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

ONE, OTHER, NOBODY = "default-0", "default-1", "default-9"
ON_NODE = "--states=running,suspended,completing,configuring,stopped,signaling,stage_out"

PASSING = {"NOT_RESPONDING"}
"""Until slurmctld has asked the node for the next time."""

Said = list[Any]


@dataclass
class Asked:
    """A cluster, real or not, in which nodes are idle."""

    run: Runner
    start: Callable[[str], str]
    """Starts a job on a node; its id."""
    stop: Callable[[], None]
    """Ends slurmctld."""


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    # A node that is set down stays so: with the product's 2 it is back when its slurmd registers, which may be at once.
    return slurm_cluster(slurm_version, workers=2, extra=f"{IMPATIENT}ReturnToService=1\n")


@pytest.fixture
def real(cluster: SlurmSandbox) -> Asked:
    def run(argv: Sequence[str], *, timeout: float = HANG_SECONDS, env: Mapping[str, str] | None = None) -> Result:
        done = cluster.run(argv, timeout=timeout, env=env)
        return Result(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def start(node: str) -> str:
        job = cluster.run(f"sbatch --parsable --output=/dev/null --nodelist={node} --wrap 'sleep 600'").stdout.strip()
        wait_until(lambda: cluster.run(f"squeue -h -j {job} -o %t").stdout == "R\n", cluster.logs)
        return job

    def stop() -> None:
        cluster.run("pkill -KILL slurmctld")
        wait_until(lambda: not cluster.run("pgrep -x slurmctld").stdout, cluster.logs)

    return Asked(run=run, start=start, stop=stop)


@pytest.fixture
def fake(slurm_version: str) -> Asked:
    slurmctld = FakeSlurmctld(lambda: 5.0, {name: FakeNode(states={"IDLE", "DYNAMIC_NORM"}) for name in (ONE, OTHER)})

    slurmctld.forgets_reasons = slurm_version != "24.11"

    def start(node: str) -> str:
        slurmctld.nodes[node].jobs += ("1",)
        slurmctld.nodes[node].states = {"MIXED", "DYNAMIC_NORM"}
        return "1"

    return Asked(run=slurmctld.runner, start=start, stop=lambda: setattr(slurmctld, "away", True))


def outcome(result: Result) -> Said:
    """The exit status, and an error's words without the names of the program and its functions."""
    return [result.code, result.stderr.strip().rpartition("error: ")[2] if result.code else ""]


def shown(asked: Asked, name: str) -> Said:
    """A node's record, as far as our programs look at it."""
    result = asked.run(["scontrol", "show", "node", name, "--json"])
    found = json.loads(result.stdout)["nodes"] if result.stdout else []
    since = [node["reason_changed_at"] for node in found]
    return [*outcome(result), *([
        sorted({*node["state"]} - PASSING), node["reason"], node["comment"], _extra(node["extra"]), node["port"]
    ] for node in found), [(at["set"], at["infinite"], at["number"] > 0) for at in since]]  # fmt: skip


def _extra(text: str) -> str:
    """Without what a worker says of itself when it registers."""
    return "" if text.startswith('{"confinement"') else text


def update(asked: Asked, name: str, *fields: str) -> Said:
    """A change, and what became of it."""
    return [outcome(asked.run(["scontrol", "update", f"nodename={name}", *fields])), shown(asked, name)]


def on_node(asked: Asked, name: str) -> Said:
    found = asked.run(["squeue", "--noheader", ON_NODE, f"--nodelist={name}", "--format=%i"])
    return [*outcome(found), len(found.stdout.split())]


def states(asked: Asked) -> Said:
    """A node is drained, set down and taken back, with and without a reason."""
    return [
        shown(asked, ONE),
        update(asked, ONE, "comment=health", "extra=more"),
        update(asked, ONE, "state=drain", "reason=bad memory"),
        update(asked, ONE, "reason=worse memory"),
        update(asked, ONE, "state=undrain"),
        update(asked, ONE, "state=drain"),
        update(asked, ONE, "state=down"),
        update(asked, ONE, "state=drain", "reason=a"),
        update(asked, ONE, "state=down", "reason=b"),
        update(asked, ONE, "state=undrain"),
        update(asked, ONE, "state=resume"),
        update(asked, ONE, "state=drain", "reason=again"),
        update(asked, ONE, "state=resume"),
    ]


def absent(asked: Asked) -> Said:
    """A node of which there is no record."""
    deleted = asked.run(["scontrol", "delete", f"nodename={NOBODY}"])
    return [shown(asked, NOBODY), update(asked, NOBODY, "state=resume"), on_node(asked, NOBODY), outcome(deleted)]


def jobs(asked: Asked) -> Said:
    """A node with a job cannot be deleted; it can be drained, and without the job it can go."""
    told = [on_node(asked, OTHER)]
    job = asked.start(OTHER)
    told += [shown(asked, OTHER), on_node(asked, OTHER), update(asked, OTHER, "state=drain", "reason=leaving")]
    told += [outcome(asked.run(["scontrol", "delete", f"nodename={OTHER}"]))]
    told += [outcome(asked.run(["scontrol", "requeue", "incomplete", job]))]
    return told


def away(asked: Asked) -> Said:
    """slurmctld does not answer."""
    asked.stop()
    commands = ["scontrol show nodes --json", f"scontrol show node {ONE} --json", *map(" ".join, WANTED_NODES)]
    commands += [f"scontrol update nodename={ONE} state=resume", f"scontrol delete nodename={ONE}"]
    return [outcome(asked.run(command.split())) for command in commands]


@pytest.mark.parametrize("story", [states, absent, jobs, away], ids=lambda story: story.__name__)
def test_a_slurmctld_that_is_played_says_what_a_real_one_says(
    real: Asked, fake: Asked, story: Callable[[Asked], Said]
) -> None:
    said, wanted = story(fake), story(real)
    assert said == wanted
