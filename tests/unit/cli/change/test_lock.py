"""Only one command at a time changes a cluster; one that was killed here does not keep others out for long."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.change import lock
from cli.change.lock import PROCESS, held, machine
from cli.errors import Failure
from local.report import PlainReport, Step
from tests.fakes.kubectl import PlayedKubectl

DEAD = f"{machine()} {2**22 + 1}"
"""A process of this machine that has ended: no process can have this number."""


@dataclass(frozen=True, kw_only=True)
class Api(PlayedKubectl):
    """The API server as far as a lease is concerned, with its words for what it refuses."""

    leases: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=lambda: {"namespace": "there", "made": 0})

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del check
        verb, body = arguments[0], json.loads(stdin) if stdin else {}
        if complaint := self._refusal(verb, body):
            return subprocess.CompletedProcess(arguments, 1, "", f"Error from server {complaint}")
        if verb == "create":
            self.write(body)
        found = self.leases.pop("it") if verb == "delete" else self.leases.get("it", {})
        return subprocess.CompletedProcess(arguments, 0, json.dumps(found), "")

    def _refusal(self, verb: str, body: dict[str, Any]) -> str:
        there = self.leases.get("it")
        if verb == "create":
            namespace = {"absent": "(NotFound): no namespace", "ending": "(Forbidden): x is being terminated"}
            return namespace.get(self.state["namespace"], "(AlreadyExists): it exists" if there else "")
        if there is None:
            return "(NotFound): no lease"
        wanted = body.get("preconditions", {}).get("uid")
        return "(Conflict): the UID differs" if wanted and wanted != there["metadata"]["uid"] else ""

    def write(self, body: dict[str, Any]) -> None:
        """Store a lease, as the server does."""
        self.state["made"] += 1
        self.leases["it"] = {**body, "metadata": {**body["metadata"], "uid": str(self.state["made"])}}

    def held_by(self, holder: str, process: str = DEAD) -> None:
        """Let somebody hold the lease who is not here."""
        metadata = {"name": "slurmstack", "annotations": {PROCESS: process}}
        self.write({"metadata": metadata, "spec": {"holderIdentity": holder, "acquireTime": "2026-11-22T12:00:00.1Z"}})


@dataclass
class Told(PlainReport):
    """What the person at the terminal is told: each wait, and what happens when it begins."""

    titles: list[str] = field(default_factory=list)
    then: Callable[[], None] = lambda: None

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.titles.append(title)
        yield Step(lambda *_: self.then(), 0)

    def info(self, text: str) -> None:
        self.titles.append(text)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.01)
    monkeypatch.setattr(lock, "LINGER", 0)


@pytest.mark.parametrize(
    "process", [f"{machine()} {os.getpid()}", "another-boot pid:[4026531836] 4194305"],
    ids=["lives", "of another machine"],
)  # fmt: skip
def test_one_that_lives_or_is_elsewhere_is_waited_for_and_never_pushed_aside(process: str) -> None:
    api, told = Api(), Told()
    api.held_by("bob", process)
    with (
        pytest.raises(Failure, match=r"bob, at work since .* has not ended after 0 s") as caught,
        held(api, "slurm", "up", told, timeout=0.1),
    ):
        pytest.fail("it is bob's")
    assert api.leases["it"]["spec"]["holderIdentity"] == "bob"
    free = "`kubectl --context test delete lease slurmstack -n slurm`"
    assert caught.value.hint.endswith(free)
    assert told.titles[0].endswith(free), "said before the wait, which may be long"


def test_a_namespace_that_is_being_deleted_is_waited_for_before_the_cluster_is_made_anew() -> None:
    api = Api(state={"namespace": "ending", "made": 0})
    api.held_by("the destroy that was killed")
    looks: list[str] = []

    def a_look_later() -> None:
        looks.append(api.leases["it"]["spec"]["holderIdentity"])
        if len(looks) > 2:
            api.state["namespace"] = "absent"
            api.leases.clear()

    told = Told(then=a_look_later)
    with held(api, "slurm", "up", told, timeout=30):
        assert api.leases == {}, "nobody can hold anything in a namespace that is not there"
    assert told.titles == ["Waiting for the deletion of the namespace"]
    assert set(looks) == {"the destroy that was killed"}, "what was taken there would go with the namespace"


def test_a_destroy_that_was_interrupted_goes_on_while_the_namespace_is_being_deleted() -> None:
    told = Told()
    with held(Api(state={"namespace": "ending", "made": 0}), "slurm", "destroy", told):
        assert told.titles == []


@pytest.mark.parametrize("meanwhile", ["it goes with the namespace", "bob has it", "Ctrl-C"])
def test_what_is_left_of_the_lock_at_the_end_is_that_of_others(meanwhile: str) -> None:
    api = Api()
    interrupted = pytest.raises(KeyboardInterrupt) if meanwhile == "Ctrl-C" else nullcontext()
    with interrupted, held(api, "slurm", "up", Told()):
        if meanwhile == "Ctrl-C":
            raise KeyboardInterrupt
        api.leases.clear()
        if meanwhile == "bob has it":
            api.held_by("bob")
    holders = [lease["spec"]["holderIdentity"] for lease in api.leases.values()]
    assert holders == (["bob"] if meanwhile == "bob has it" else [])
