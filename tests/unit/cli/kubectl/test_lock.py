"""Only one command at a time changes a cluster; one that was killed does not keep others out for long."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest

from cli.errors import Failure
from cli.kubectl import lock
from cli.kubectl.apply import Plan, apply
from cli.kubectl.lock import held
from cli.program.generated import KeptValues
from cli.program.manifests import Manifest
from local.report import Step
from tests.fakes.kubectl import PlayedKubectl
from tests.stacks import ROOT


@dataclass(frozen=True, kw_only=True)
class Api(PlayedKubectl):
    """The API server as far as a lease is concerned, with its words for what it refuses."""

    leases: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=lambda: {"namespace": "there", "versions": 0})
    calls: list[tuple[str, ...]] = field(default_factory=list)
    alone: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del check
        with self.alone:
            self.calls.append(arguments)
            verb, body = arguments[0], json.loads(stdin) if stdin else {}
            if verb == "get" and self.state.pop("slow", False):
                return subprocess.CompletedProcess(arguments, 1, "", "Unable to connect to the server: timeout")
            complaint = self._refusal(verb, body) if "--raw" in arguments else ""
            if verb == "create" and "--raw" not in arguments:  # the keys
                complaint = "(AlreadyExists): secrets exist"
            if complaint:
                return subprocess.CompletedProcess(arguments, 1, "", f"Error from server {complaint}")
            if verb in {"create", "replace"}:
                self.write(body)
            if verb == "get" and self.state.get("renewed"):
                self.write(self.leases["it"])
            found = self.leases.pop("it") if verb == "delete" else self.leases.get("it", {})
            return subprocess.CompletedProcess(arguments, 0, json.dumps(found), "")

    def _refusal(self, verb: str, body: dict[str, Any]) -> str:
        there = self.leases.get("it")
        if verb == "create":
            namespace = {"absent": "(NotFound): no namespace", "ending": "(Forbidden): x is being terminated"}
            return namespace.get(self.state["namespace"], "(AlreadyExists): it exists" if there else "")
        if there is None:
            return "(Conflict): precondition failed" if verb == "replace" else "(NotFound): no lease"
        wanted = body.get("metadata", body.get("preconditions", {})).get("resourceVersion")
        return "(Conflict): modified" if wanted and wanted != there["metadata"]["resourceVersion"] else ""

    def write(self, body: dict[str, Any], holder: str = "") -> None:
        """Store a lease, as the server does."""
        self.state["versions"] += 1
        metadata = {"uid": "1", **body["metadata"], "resourceVersion": str(self.state["versions"])}
        self.leases["it"] = {**body, "metadata": metadata}
        if holder:
            self.leases["it"]["spec"] = {**body["spec"], "holderIdentity": holder}

    def held_by(self, holder: str) -> None:
        """Let somebody hold the lease who is not here."""
        self.write({"metadata": {"name": "slurmstack"}, "spec": {"acquireTime": "2026-11-22T12:00:00.1Z"}}, holder)


@dataclass
class Told:
    """What the person at the terminal is told: each wait, and what happens when it begins."""

    titles: list[str] = field(default_factory=list)
    then: Callable[[], None] = lambda: None

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.titles.append(title)
        yield self

    def progress(self, done: int, total: int, detail: str = "") -> None:
        del done, total, detail
        self.then()

    def note(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.01)
    monkeypatch.setattr(lock, "RENEWAL", 0.01)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_people_are_told_which_commands_wait_for_each_other() -> None:
    text = (ROOT / "docs/changes.md").read_text(encoding="utf-8")
    told = text.partition("## Two at once")[2].partition("\n## ")[0]
    assert not {
        work for work in get_args(lock.Work) if f"`{work}`" not in told.replace("`backup rehearse`", "`rehearse`")
    }


def test_a_command_that_was_killed_keeps_others_out_only_until_it_counts_as_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock, "DURATION", 0)
    api, told = Api(), Told()
    api.held_by("slurmstack up of bob@elsewhere")
    with held(api, "slurm", "up", told, timeout=30) as ours:
        assert ours.waited_for.startswith("slurmstack up of bob@elsewhere")
        assert "bob" not in api.leases["it"]["spec"]["holderIdentity"]
    assert told.titles == ["Waiting for slurmstack up of bob@elsewhere, at work since 2026-11-22T12:00:00 UTC"]


def test_one_that_lives_is_waited_for_and_never_pushed_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "DURATION", 0)
    api = Api()
    api.held_by("bob")
    api.state["renewed"] = True
    with (
        pytest.raises(Failure, match=r"bob, at work since .* has not ended after 0 s"),
        held(api, "slurm", "up", Told(), timeout=0.1),
    ):
        pytest.fail("it is bob's")
    assert api.leases["it"]["spec"]["holderIdentity"] == "bob"


def test_a_namespace_that_is_being_deleted_is_waited_for_before_the_cluster_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock, "DURATION", 0)
    api = Api(state={"namespace": "ending", "versions": 0})
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
    with held(Api(state={"namespace": "ending", "versions": 0}), "slurm", "destroy", told):
        assert told.titles == []


def test_the_lock_may_go_with_the_namespace_that_is_destroyed() -> None:
    api = Api()
    with held(api, "slurm", "destroy", Told()):
        api.leases.clear()
        api.calls.clear()
        until(lambda: [call for call in api.calls if call[0] == "get"])


def test_ctrl_c_lets_others_in_at_once() -> None:
    api = Api()
    with pytest.raises(KeyboardInterrupt), held(api, "slurm", "up", Told()):
        raise KeyboardInterrupt
    assert api.leases == {}


def test_a_renewal_whose_answer_was_lost_is_none_of_somebody_else() -> None:
    api = Api()
    with held(api, "slurm", "up", Told()):
        api.write(api.leases["it"])
        written = api.state["versions"]
        until(lambda: api.state["versions"] > written)


@pytest.mark.parametrize("work", ["up", "destroy"])
def test_a_cluster_that_does_not_answer_is_asked_again_and_nobody_is_taken_for_dead(work: lock.Work) -> None:
    api = Api()
    with held(api, "slurm", work, Told()):
        with api.alone:  # the answer to a renewal is lost, and the question about it too
            api.state["slow"] = True
            api.write(api.leases["it"])
            written = api.state["versions"]
        until(lambda: api.state["versions"] > written)
        assert "slow" not in api.state


def test_one_who_died_after_the_old_namespace_had_gone_is_followed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "DURATION", 0)
    api = Api(state={"namespace": "ending", "versions": 0})
    told = Told(then=lambda: api.state.update(namespace="absent"))
    with held(api, "slurm", "up", told, timeout=30) as ours:
        api.state["namespace"] = "there"
        api.held_by("bob")
        ours.take()
        assert api.leases["it"]["spec"]["holderIdentity"] != "bob"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background"])
def test_a_command_that_slept_while_another_took_over_stops_and_says_so(handler: Any) -> None:
    """Also one that a script has put in the background, where Ctrl-C is ignored."""
    api, stopped = Api(), list[bool]()

    def work() -> None:
        with held(api, "slurm", "up", Told()):
            api.write(api.leases["it"], "bob")
            try:
                until(lambda: False)
            except KeyboardInterrupt:
                stopped.append(True)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(Failure, match="taken for dead: bob, at work since"):
            work()
        assert stopped
        assert signal.getsignal(signal.SIGINT) == handler
        assert api.leases["it"]["spec"]["holderIdentity"] == "bob"
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("seen", [False, True], ids=["planned before the namespace was there", "planned after"])
def test_of_two_that_make_the_same_cluster_the_second_takes_the_lock_and_gives_up_before_it_makes_other_keys(
    *, seen: bool
) -> None:
    api = Api(state={"namespace": "absent", "versions": 0})
    documents = [{"kind": kind, "metadata": {"name": "slurm"}} for kind in ("Namespace", "PersistentVolumeClaim")]
    objects = tuple(Manifest(urn="", document=document) for document in documents)
    keys = KeptValues({})
    keys.random_bytes("munge", 32)
    live = {("Namespace", "slurm"): documents[0]} if seen else {}
    planned = Plan(namespace="slurm", objects=objects, kept=keys, live=live, inside={}, outside=(), effects=())
    with held(api, "slurm", "up", Told()) as ours:
        assert not ours.is_held
        api.state["namespace"] = "there"
        with pytest.raises(
            Failure, match="another `slurmstack up` has made keys for the cluster in namespace 'slurm' meanwhile"
        ):
            apply(api, planned, ours)
        assert ours.is_held
        assert api.leases
    changed = [call[0] for call in api.calls if "--raw" not in call]
    assert changed == ([] if seen else ["apply"]) + ["create"], "the namespace, and keys that nobody has taken"


def test_a_lease_that_somebody_else_wrote_may_lack_every_field() -> None:
    assert lock._holder({"metadata": {"resourceVersion": "1"}}) == "somebody"
    assert lock._holder({"spec": {"holderIdentity": "bob"}}) == "bob"
