"""dns and munge: the difference between unknown, silent and wrong. The outputs are those of munge 0.5.18."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT
from images.common.command import Result as Ended
from images.common.health.contract import Result
from images.health.checks import dns, munge
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import Like, make_node, outcomes, table, words, write

Answers = Mapping[str, socket.gaierror]

CONF = "ClusterName=test\nSlurmctldHost=controller-0\nSlurmctldPort=6817\n"
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
BROKEN = socket.gaierror(socket.EAI_SYSTEM, "System error")
NO_ANSWER = "controller-0: no name server answers"


class Names:
    """What name servers answer, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.answers: Answers = {}
        self.reads = [0.0]
        self.node = make_node(tmp_path)
        monkeypatch.setattr(dns, "resolve", self.resolve)
        monkeypatch.setattr("time.monotonic", lambda: self.reads.pop(0) if len(self.reads) > 1 else self.reads[0])

    def resolve(self, name: str) -> None:
        assert name in {"controller-0", "w-0"}
        if name in self.answers:
            raise self.answers[name]

    def check(
        self, answers: Answers | None = None, *, at: float = 1000.0, slow: float = 0.0, conf: str | None = CONF
    ) -> Result:
        """Run it; `slow`: seconds that the first look-up takes."""
        if conf is not None:
            write(self.node.root / dns.CONFIGURATION, conf)
        self.answers, self.reads = answers or {}, [at - slow, at]
        return dns.run(self.node, FakeRunner())


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Names:
    return Names(monkeypatch, tmp_path)


@table(
    "answers, expected",
    {
        "all lead somewhere": ({}, "ok"),
        "slurmctld is not known": ({"controller-0": UNKNOWN}, "fail [node]: controller-0 is not known"),
        "the node is not known": ({"w-0": UNKNOWN}, "fail [node]: w-0 is not known"),
        "a resolver that fails otherwise": ({"w-0": BROKEN}, "not checked: w-0: System error"),
    },
)
def test_names_lead_somewhere(names: Names, answers: Answers, expected: str) -> None:
    assert words(names.check(answers)) == expected


@table(
    "runs, slow, expected",
    {
        "silent servers are a fault after a minute": (
            [{"controller-0": SILENT}] * 3,
            0.0,
            [f"warn [node]: {NO_ANSWER}", "warn ...", f"fail [node]: no answer for 60 s now; {NO_ANSWER}"],
        ),
        "an answer in between begins anew": (
            [{"w-0": SILENT}, {}, {"w-0": SILENT}],
            0.0,
            ["warn ...", "ok", "warn ..."],
        ),
        "slow answers are never a fault": ([{}] * 5, 2.5, ["warn [node]: w-0 took 2.5 s"] * 5),
    },
)
def test_runs_in_a_row(names: Names, runs: list[Answers], slow: float, expected: list[str]) -> None:
    said = [words(names.check(answers, at=1000.0 + 30 * run, slow=slow)) for run, answers in enumerate(runs)]
    assert said == [Like(form) for form in expected]


def test_without_a_configuration_it_is_not_checked(names: Names) -> None:
    assert words(names.check(conf=None)) == Like("not checked: ...slurm.conf...")


def test_all_controllers_are_looked_for_under_their_addresses() -> None:
    conf = "slurmctldhost = one\n SlurmctldHost=two(10.0.0.2) # second\nSlurmctldHost=three(three.example)\n"
    assert dns.controllers(conf) == ["one", "10.0.0.2", "three.example"]


SUCCESS = "STATUS:          0\n\n"
NO_SOCKET = 'Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)'
UNAUTHORIZED = "Unauthorized credential for client UID=0"


@outcomes(
    "ended",
    [
        ("ok", Ended(code=0, stdout=SUCCESS)),
        (f"fail [node]: munged of this pod: {NO_SOCKET}", Ended(code=6, stderr=f"munge: Error: {NO_SOCKET}\n")),
        (f"fail [node]: ...: {UNAUTHORIZED}", Ended(code=18, stderr=f"unmunge: Error: {UNAUTHORIZED}\n")),
        ("not checked: ...", Ended(code=15, stderr="unmunge: Error: Expired credential")),
        ("not checked: ...", Ended(code=1, stderr="munge: Error: No space left on device")),
        ("not checked: ...", Ended(code=0, stdout="STATUS:     17\n")),
        ("not checked: munged did not answer in 4 s", Ended(code=TIMED_OUT)),
        ("not checked: ...not found", Ended(code=NO_PROGRAM, stderr="sh: 1: munge: not found")),
    ],
)
def test_a_munged_that_does_not_understand_itself_is_a_fault(tmp_path: Path, expected: str, ended: Ended) -> None:
    runner = FakeRunner({"sh": ended})
    assert words(munge.CHECK.run(make_node(tmp_path), runner)) == Like(expected)
