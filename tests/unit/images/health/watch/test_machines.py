"""The machines, as Kubernetes sees them: cordoned, not ready, gone."""

from __future__ import annotations

from dataclasses import replace

from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.health.watch.machines import Machine, Machines, Place
from tests.unit.images.health.places import Like, table, words
from tests.unit.images.health.watch.views import NOW, Followed

READY = Machine(ready="True", conditions={})
SILENT = Machine(ready="Unknown", why="kubelet stopped posting", conditions={})
CORDONED = replace(READY, cordoned=True)
RELEASED = replace(CORDONED, released_for="health/gpu-xid")
UNWANTED = replace(READY, conditions={"Maintenance": "on Tuesday"})


class Cluster:
    """Two workers, each on a machine of its own; Maintenance drains."""

    def __init__(self, m_0: Machine = READY, *, answers: bool = True) -> None:
        self.pods = Followed({"w-0": Place(node="m-0"), "w-1": Place(node="m-1")})
        self.nodes = Followed({"m-0": m_0, "m-1": READY})
        self.answers = answers
        self.states = frozenset({"IDLE"})
        self.probed: list[tuple[str, int]] = []
        self.machines = Machines(
            pods=self.pods, nodes=self.nodes, drain_conditions=frozenset({"Maintenance"}), probe=self._probe
        )

    def _probe(self, address: str, port: int) -> bool:
        self.probed.append((address, port))
        return self.answers

    def look(self) -> Finding:
        """What is found about w-0."""
        records = [Record(name=name, states=self.states, address=f"10.0.0.{name[-1]}") for name in ("w-0", "w-1")]
        findings = self.machines.findings(records, NOW)
        assert set(findings) == {"w-0", "w-1"}
        return findings["w-0"]


def said(finding: Finding) -> str:
    """What is found, and how: somebody wants it so, or the machine is lost."""
    return words(finding.result) + " (declared)" * finding.declared + " (lost)" * finding.lost


@table(
    "machine, expected",
    {
        "ready": (READY, "ok"),
        "cordoned": (CORDONED, "fail [node]: machine m-0 is cordoned (declared)"),
        "a condition that drains": (UNWANTED, "fail [node]: ...Maintenance... (declared)"),
        "a condition that the site does not name": (replace(READY, conditions={"Other": ""}), "ok"),
        "a condition that a watcher has set": (replace(READY, conditions={"Maintenance": "slurmstack: w-0: x"}), "ok"),
        "released for replacement": (RELEASED, "fail [node]: machine m-0 is released for health/gpu-xid (declared)"),
        "released and uncordoned": (replace(RELEASED, cordoned=False), "ok"),
    },
)
def test_a_machine_that_answers(machine: Machine, expected: str) -> None:
    cluster = Cluster(machine)
    assert said(cluster.look()) == Like(expected)
    assert cluster.probed == [], "its slurmd is not bothered"


def test_since_when_the_condition_is_true() -> None:
    known = replace(UNWANTED, since={"Maintenance": NOW - 9})
    assert Cluster(known).look().unwanted_since == NOW - 9
    assert Cluster(UNWANTED).look().unwanted_since == 0.0, "as good as for ever"
    assert Cluster(replace(known, cordoned=True)).look().unwanted_since is None, "a cordon counts first"
    assert Cluster(RELEASED).look().unwanted_since == 0.0, "no person has said so: the limit holds"


LOST = "fail [node]: ...slurmd does not answer (lost)"


def test_a_machine_is_lost_only_when_its_slurmd_is_silent_too() -> None:
    cluster = Cluster(SILENT)
    assert said(cluster.look()) == "fail [node]: machine m-0 is not ready: kubelet stopped posting"
    cluster.answers = False
    assert said(cluster.look()) == Like(LOST)
    assert set(cluster.probed) == {("10.0.0.0", 6818)}
    cluster.nodes.synced = False
    assert said(cluster.look()) == "not checked: the Kubernetes API does not answer"
    cluster.nodes.synced = True
    cluster.probed.clear()
    for state in ("DOWN", "POWERED_DOWN"):
        cluster.states = frozenset({state})
        assert not cluster.look().lost
    assert cluster.probed == [], "one that is set down, or sleeps, is not asked any more"


def test_a_machine_that_vanished_with_its_pod_is_still_known_to_be_gone() -> None:
    cluster = Cluster(answers=False)
    assert said(cluster.look()) == "ok"
    del cluster.nodes.copy["m-0"], cluster.pods.copy["w-0"]
    assert said(cluster.look()) == Like(LOST)
    cluster.pods.copy["w-0"] = Place(node="")  # the new one waits for a machine
    assert said(cluster.look()) == Like(LOST)
    cluster.pods.copy["w-0"] = Place(node="m-1")
    assert said(cluster.look()) == "ok"


def test_a_node_whose_pod_was_never_seen_or_is_forgotten_with_its_record_is_not_ours() -> None:
    cluster = Cluster(answers=False)
    place = cluster.pods.copy.pop("w-0")
    assert said(cluster.look()) == "not checked: its pod is not known"
    cluster.pods.copy["w-0"] = place
    cluster.look()
    cluster.machines.findings([], NOW)
    del cluster.pods.copy["w-0"]
    assert said(cluster.look()) == "not checked: its pod is not known"
