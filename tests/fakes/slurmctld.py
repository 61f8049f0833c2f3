"""slurmctld behind scontrol and squeue: records of nodes with their jobs, in what our programs ask and change."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from images.common.command import Result
from tests.fakes.commands import FakeRunner

AWAY = "Unable to contact slurm controller (connect failure)"


def number(value: int) -> dict[str, Any]:
    """As Slurm writes one in JSON."""
    return {"set": True, "infinite": False, "number": value}


@dataclass
class FakeNode:
    """A node record."""

    states: set[str]
    reason: str = ""
    reason_at: int = 0
    comment: str = ""
    extra: str = ""
    started_at: int = 1
    """When slurmd started."""
    jobs: tuple[str, ...] = ()


class FakeSlurmctld:
    """Nodes by name. tests/slurm/test_fakes.py asks it and real ones the same."""

    def __init__(self, wall: Callable[[], float] = lambda: 0.0, nodes: dict[str, FakeNode] | None = None) -> None:
        self.wall = wall
        self.nodes = nodes or {}
        self.wanted = "(null)"
        """Nodes that pending jobs ask for by name."""
        self.completing: list[str] = []
        """Nodes that each completing job had."""
        self.away: bool | Result = False
        """Whether slurmctld does not answer, or what the commands say then, as one that waits until it is ended."""
        self.forgets_reasons = True
        """When a node is well again: so does 26.05, and 24.11 only with accounting."""
        self.saves_power = True
        """Whether there is a SuspendProgram."""
        self.refuses: dict[str, str] = {}
        """Name of a node or job, or `delete NODE` -> why Slurm does not do it."""
        self.requeued: list[str] = []
        self.before_change: Callable[[], None] = lambda: None
        self.runner = FakeRunner(
            {
                "scontrol show nodes --json": self._answers("slurm_load_node error", self._show_all),
                "scontrol show node ": self._ask_one,
                "scontrol update": self._answers("slurm_update error", self._update),
                "scontrol requeue": self._answers("slurm_requeue error", self._requeue),
                "scontrol notify": self._answers("slurm_notify_job error", lambda _: Result(code=0)),
                "scontrol delete": self._delete,
                "squeue": self._answers("slurm_load_jobs error", self._squeue),
            }
        )

    def changes(self) -> list[str]:
        """Commands that change something."""
        return [command for command in self.runner.commands if " show " not in command and "squeue" not in command]

    def _answers(self, program: str, answer: Callable[[Sequence[str]], Result]) -> Callable[[Sequence[str]], Result]:
        def asked(argv: Sequence[str]) -> Result:
            if isinstance(self.away, Result):
                return self.away
            return Result(code=1, stderr=f"{program}: {AWAY}") if self.away else answer(argv)

        return asked

    def _show_all(self, _: Sequence[str]) -> Result:
        return self._show(list(self.nodes))

    def _ask_one(self, argv: Sequence[str]) -> Result:
        """What is changed is looked at before."""
        self.before_change()
        return self._answers("slurm_load_node error", lambda _: self._show([argv[3]]))(argv)

    def _show(self, names: Sequence[str]) -> Result:
        records = [self._record(name, node) for name, node in self.nodes.items() if name in names]
        return Result(code=0, stdout=json.dumps({"nodes": records}))

    def _record(self, name: str, node: FakeNode) -> dict[str, Any]:
        return {
            "name": name,
            "state": sorted({"ALLOCATED" if state == "IDLE" and node.jobs else state for state in node.states}),
            "reason": node.reason,
            "reason_changed_at": number(node.reason_at),
            "comment": node.comment,
            "extra": node.extra,
            "address": "10.0.0.9",
            "port": 6818,
            "slurmd_start_time": number(node.started_at),
        }

    def _update(self, argv: Sequence[str]) -> Result:
        fields = dict(part.split("=", 1) for part in argv[2:])
        name = fields["nodename"]
        if name in self.refuses:
            return Result(code=1, stderr=self.refuses[name])
        node = self.nodes.get(name)
        if node is None:
            return Result(code=1, stderr="slurm_update error: Invalid node name specified")
        state = fields.get("state", "")
        if state in {"drain", "down"} and not fields.get("reason"):
            return Result(code=1, stderr="You must specify a reason when DOWNING or DRAINING a node. Request denied")
        if state.startswith("power_") and not self.saves_power:
            return Result(code=1, stderr="slurm_update error: Power management not enabled")
        node.comment, node.extra = fields.get("comment", node.comment), fields.get("extra", node.extra)
        if fields.get("reason"):
            node.reason, node.reason_at = fields["reason"], int(self.wall())
        self._turn(node, state)
        return Result(code=0)

    def _turn(self, node: FakeNode, state: str) -> None:
        if state == "drain":
            node.states.add("DRAIN")
        elif state in {"undrain", "resume"}:
            node.states.discard("DRAIN")
            if state == "resume" and "DOWN" in node.states:
                node.states = {"IDLE", *(node.states - {"DOWN"})}
            if "IDLE" in node.states and self.forgets_reasons:
                node.reason, node.reason_at = "", 0
        elif state == "power_down_asap":
            node.states |= {"POWER_DOWN", "DRAIN"}
            if not node.jobs:
                node.states = {"POWERING_DOWN", *(node.states - {"POWER_DOWN", "DRAIN"})}  # it lifts the drain, too
        elif state == "down":
            node.states = {"DOWN", *(node.states & {"DRAIN", "DYNAMIC_NORM"})}
            self.requeued += node.jobs
            node.jobs = ()

    def _requeue(self, argv: Sequence[str]) -> Result:
        """Each job of a list, whatever becomes of the others."""
        asked = argv[3].split(",")
        assert argv[2] == "incomplete", "jobs that have ended would run once more"
        refused = [self.refuses[job] for job in asked if job in self.refuses]
        gone = {job for job in asked if job not in self.refuses}
        self.requeued += [job for job in asked if job in gone]
        for node in self.nodes.values():
            node.jobs = tuple(job for job in node.jobs if job not in gone)
        return Result(code=1, stderr="\n".join(refused)) if refused else Result(code=0)

    def _delete(self, argv: Sequence[str]) -> Result:
        name = argv[2].partition("=")[2]
        why = self.refuses.get(f"delete {name}", "")
        if self.away:
            why = AWAY
        elif name not in self.nodes:
            why = "Invalid node name specified"
        elif self.nodes[name].jobs:
            why = "Requested nodes are busy"
        if why:
            failed = "" if self.away else f"failed to delete nodes {name}\n"
            return Result(code=1, stderr=f"slurm_delete_node error: {failed}delete_node nodename={name}: {why}")
        del self.nodes[name]
        return Result(code=0)

    def _squeue(self, argv: Sequence[str]) -> Result:
        if "--states=pending" in argv:
            return Result(code=0, stdout=f"(null)\n{self.wanted}\n")
        if "--states=completing" in argv:
            jobs = [{"job_resources": {"nodes": {"list": had}}} for had in self.completing]
            return Result(code=0, stdout=json.dumps({"jobs": jobs}))
        (name,) = (part.partition("=")[2] for part in argv if part.startswith("--nodelist="))
        if name not in self.nodes:
            return Result(code=1, stderr=f"squeue: error: Invalid node name {name}")
        return Result(code=0, stdout="".join(f"{job}\n" for job in self.nodes[name].jobs))
