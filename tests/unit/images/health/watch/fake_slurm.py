"""A slurmctld that keeps node records and answers scontrol and squeue as the watcher uses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from images.common.command import Result
from tests.fakes.commands import FakeRunner


@dataclass
class FakeNode:
    """A node record."""

    states: set[str]
    reason: str = ""
    reason_at: int = 0
    comment: str = ""
    jobs: tuple[str, ...] = ()


class FakeSlurmctld:
    """What Slurm 24.11 does with the commands of the watcher."""

    def __init__(self, now: Callable[[], float], nodes: dict[str, FakeNode] | None = None) -> None:
        self.now = now
        self.nodes = nodes or {}
        self.away: Result | None = None
        self.refuses: dict[str, str] = {}
        self.requeued: list[str] = []
        self.before_change: Callable[[], None] = lambda: None
        self.runner = FakeRunner(
            {
                "scontrol show nodes --json": lambda _: self.away or self._show(self.nodes),
                "scontrol show node ": self._show_one,
                "scontrol update": self._update,
                "scontrol requeue": self._requeue,
                "squeue": self._squeue,
            }
        )

    def changes(self) -> list[str]:
        """Commands that change something."""
        return [command for command in self.runner.commands if " show " not in command and "squeue" not in command]

    def _show(self, nodes: dict[str, FakeNode]) -> Result:
        records = [
            {
                "name": name,
                "state": sorted(node.states),
                "reason": node.reason,
                "reason_changed_at": {"set": True, "infinite": False, "number": node.reason_at},
                "comment": node.comment,
                "address": "10.0.0.9",
                "port": 6818,
            }
            for name, node in nodes.items()
        ]
        return Result(code=0, stdout=json.dumps({"nodes": records}))

    def _show_one(self, argv: Sequence[str]) -> Result:
        self.before_change()
        return self.away or self._show({name: node for name, node in self.nodes.items() if name == argv[3]})

    def _update(self, argv: Sequence[str]) -> Result:
        fields = dict(part.split("=", 1) for part in argv[2:])
        name = fields["nodename"]
        if self.away:
            return self.away
        if name in self.refuses:
            return Result(code=1, stderr=self.refuses[name])
        node = self.nodes[name]
        state = fields.get("state", "")
        assert state not in {"drain", "down"} or fields.get("reason"), "Slurm wants a reason for these"
        if fields.get("reason"):
            node.reason, node.reason_at = fields["reason"], int(self.now())
        if state == "drain":
            node.states.add("DRAIN")
        elif state == "undrain":
            node.states.discard("DRAIN")
            if "IDLE" in node.states:
                node.reason, node.reason_at = "", 0
        elif state == "down":
            node.states = {"DOWN", *(node.states & {"DRAIN", "DYNAMIC_NORM"})}
            self.requeued += node.jobs
            node.jobs = ()
        return Result(code=0)

    def _requeue(self, argv: Sequence[str]) -> Result:
        job = argv[2]
        if job in self.refuses:
            return Result(code=1, stderr=self.refuses[job])
        self.requeued.append(job)
        for node in self.nodes.values():
            node.jobs = tuple(other for other in node.jobs if other != job)
        return Result(code=0)

    def _squeue(self, argv: Sequence[str]) -> Result:
        (name,) = (part.partition("=")[2] for part in argv if part.startswith("--nodelist="))
        return self.away or Result(code=0, stdout="\n".join(self.nodes[name].jobs) + "\n")
