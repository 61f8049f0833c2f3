"""Restores and applies in any order, each cut short anywhere: Slurm never runs on what is half restored, nothing is
replaced that was not saved, and what is stopped says how to go on."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from typing import Any, NamedTuple

import pytest

from cli.backup.restore import Restoring
from cli.change.apply import forget_restore
from cli.change.owner import has_put_back, is_stopped, note_of, refuse_half_restored
from cli.errors import Failure
from cli.kubectl.client import component_of
from tests.unit.cli.backup.cluster import REPORT, Cluster

PARTS = (("state",), ("database",), ("jail",), ("state", "database"), ("state", "jail"), ("state", "database", "jail"))
ENDS = ("restore_state", "restore_jail", "backup_state")
BACKUPS = ("20261126T020000Z", "20261125T020000Z")


class Killed(BaseException):
    """kill -9: nothing of the command runs any more."""


class Fault(NamedTuple):
    """At a question or a change of kubectl's, before it has its effect or after."""

    at: int
    after: bool
    how: str
    lasts: int
    """Calls that fail, of an API server that is away."""


class Shaken(Cluster):
    """It looks at each change whether that may be."""

    def start_over(self, *, elastic: bool) -> None:
        if not elastic:
            self.objects = [item for item in self.objects if item["metadata"]["name"] != "elastic"]
        self.workloads = [item for item in self.objects if item["kind"] in {"StatefulSet", "Deployment"}]
        self.pods = [item["spec"].get("replicas", 1) for item in self.workloads]
        self.half, self.unsaved, self.wrong = set[str](), {"state", "database", "jail"}, list[str]()
        self.calm()

    def calm(self, fault: Fault | None = None, **ends: int) -> None:
        self.fault, self.ends = fault, ends
        self.calls, self.is_dead, self.is_away = 0, False, 0

    def runs(self, *components: str) -> bool:
        return any(item["spec"].get("replicas", 1) for item in self.workloads if component_of(item) in components)

    def look(self) -> None:
        if self.runs("controller"):
            self.unsaved |= {"state", "database"}
            if self.half & {"state", "database"}:
                self.wrong.append(f"slurmctld runs, and half restored are {self.half}")
        if self.runs("login", "worker"):
            self.unsaved |= {"jail"}
            if "jail" in self.half:
                self.wrong.append("pods lead into a jail that is half restored")

    def shake(self, *, after: bool) -> None:
        if self.is_dead:
            raise Killed
        if self.is_away:
            self.is_away -= 1
            raise Failure("the API server is away")
        self.calls += not after
        if self.fault is None or (self.calls, after) != self.fault[:2]:
            return
        how, self.is_away = self.fault.how, self.fault.lasts - 1 if self.fault.how == "away" else 0
        self.fault, self.is_dead = None, how == "killed"
        raise {"killed": Killed, "interrupted": KeyboardInterrupt}.get(how) or Failure("the API server is away")

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        self.shake(after=False)
        found = super().items(kind, *arguments)
        self.shake(after=True)
        return found

    def run(self, *arguments: str, stdin: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
        self.shake(after=False)
        if arguments[0] == "create":
            self.runs_job(json.loads(stdin or "")["items"][0])
        done = super().run(*arguments, stdin=stdin, **more)
        self.look()
        self.shake(after=True)
        return done

    def runs_job(self, job: dict[str, Any]) -> None:
        pod = job["spec"]["template"]["spec"]
        containers = [*pod["initContainers"], *pod["containers"]]
        failed = next((each["name"] for each in containers if self.ends.get(each["name"].replace("-", "_"))), "")
        told = {item["name"]: item.get("value", "") for item in containers[0]["env"]}
        if job["metadata"]["name"] != "restore":
            self.unsaved -= set() if failed else set(told["PARTS"].split())
            return
        what = set(told["WHAT"].split())
        if lost := what & self.unsaved - self.half:
            self.wrong.append(f"replaced, and not saved: {lost}")
        self.half = self.half | what if failed else self.half - what
        self.unsaved -= what

    def restore(self, parts: tuple[str, ...], backup: str, *, start: bool) -> None:
        Restoring(self.kubectl, "slurm", parts, REPORT).run(backup, copy=True, start=start)

    def apply(self) -> None:
        refuse_half_restored(self.objects)
        for item, replicas in zip(self.workloads, self.pods, strict=True):
            item["spec"]["replicas"] = replicas
        self.look()
        forget_restore(self.kubectl, "slurm", self.objects)

    def is_left(self) -> bool:
        """Whether something is stopped, which no apply would start."""
        return any(map(is_stopped, self.workloads)) and not any(map(has_put_back, self.objects))


def some_order(cluster: Shaken, chance: random.Random) -> list[str]:
    """Some commands, one after the other; what they were, and what came of them."""
    often, told = chance.choice(PARTS), list[str]()
    for _ in range(chance.randint(2, 5)):
        parts = often if chance.random() < 0.6 else chance.choice(PARTS)
        start = parts != ("state", "database") or chance.random() < 0.6
        how = chance.choice(["killed", "interrupted", "fails", "away"])
        fault = Fault(at=chance.randint(3, 40), after=chance.random() < 0.5, how=how, lasts=chance.randint(1, 6))
        backup, applies = chance.choice(BACKUPS), chance.random() < 0.2
        ends = {chance.choice(ENDS): 1} if chance.random() < 0.45 else {}
        cluster.calm(fault if chance.random() < 0.7 and not applies else None, **ends)
        said, hint = f"{'up' if applies else parts} of {backup}, start {start}, {fault}, {ends}", ""
        try:
            cluster.apply() if applies else cluster.restore(parts, backup, start=start)
        except (Failure, KeyboardInterrupt, Killed) as error:
            hint = getattr(error, "hint", "")
            said += f": {error!r} ({hint})"
        told.append(f"{said}; half {cluster.half}, {note_of(cluster.objects)}")
        cluster.calm()
        if hint.startswith("nothing was touched") and cluster.is_left():
            cluster.wrong.append("nothing was touched, it says, and something is stopped")
    return told


def go_on(cluster: Shaken) -> None:
    """As the note says, in the end."""
    note = note_of(cluster.objects)
    if note is not None and any(map(is_stopped, cluster.workloads)):
        cluster.restore(note.parts, note.backup, start=not note.leave_stopped)
    assert not cluster.is_left()
    assert not cluster.half, "an apply would start it"


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_whatever_the_order_and_wherever_it_is_cut_short(first: int) -> None:
    as_it_was = Shaken()
    for seed in range(first, first + 50):
        chance, cluster = random.Random(seed), copy.deepcopy(as_it_was)
        cluster.start_over(elastic=chance.random() < 0.6)
        told = some_order(cluster, chance)
        try:
            go_on(cluster)
        except (Failure, AssertionError) as error:
            cluster.wrong.append(f"going on: {error}")
        assert not cluster.wrong, "\n".join([f"seed {seed}", *told, *cluster.wrong])
