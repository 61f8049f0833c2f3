"""dns and munge: the difference between unknown, silent and wrong. The outputs are those of munge 0.5.18."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT
from images.common.command import Result as Ended
from images.common.health.contract import Node, Result, Thresholds
from images.health.checks import dns, munge
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node, write
from tests.unit.images.health.tables import Like, outcomes, table, words

Answers = Mapping[str, list[str] | socket.gaierror]

CONF = "ClusterName=test\nSlurmctldHost=controller-0\nSlurmctldPort=6817\n"
OURS = "10.244.1.5"
GOOD: Answers = {"controller-0": ["10.96.0.7"], "w-0": [OURS]}
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
BROKEN = socket.gaierror(socket.EAI_SYSTEM, "System error")
ELSEWHERE = "w-0, this node's own name, leads to 10.244.9.9, which is not an address of this pod"
NO_ANSWER = "controller-0: no name server answers"


class Names:
    """What name servers answer, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.answers: Answers = GOOD
        self.reads = [0.0]
        self.node = make_node(tmp_path)
        monkeypatch.setattr(dns, "resolve", self.resolve)
        monkeypatch.setattr(dns, "is_ours", OURS.__eq__)
        monkeypatch.setattr("time.monotonic", lambda: self.reads.pop(0) if len(self.reads) > 1 else self.reads[0])

    def resolve(self, name: str) -> list[str]:
        answer = self.answers.get(name, UNKNOWN)
        if isinstance(answer, socket.gaierror):
            raise answer
        return answer

    def check(
        self,
        answers: Answers = GOOD,
        *,
        at: float = 1000.0,
        slow: float = 0.0,
        conf: str | None = CONF,
        **limits: float,
    ) -> Result:
        """Run it; `slow`: seconds that the first look-up takes."""
        if conf is not None:
            write(self.node.root / dns.CONFIGURATION, conf)
        self.answers, self.reads = {**GOOD, **answers}, [at - slow, at]
        return dns.run(self.node, FakeRunner(), Thresholds({"dns": limits}))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Names:
    return Names(monkeypatch, tmp_path)


@table(
    "answers, expected",
    {
        "all lead where they should": ({}, "ok"),
        "one own address of several": ({"w-0": ["fd00::1", OURS]}, "ok"),
        "slurmctld is not known": ({"controller-0": UNKNOWN}, "fail [node]: controller-0 is not known"),
        "the node is not known": ({"w-0": UNKNOWN}, "fail [node]: w-0 is not known"),
        "the own name leads elsewhere": ({"w-0": ["10.244.9.9"]}, f"fail [node]: {ELSEWHERE}"),
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


def test_a_configuration_without_a_controller_is_not_checked(names: Names) -> None:
    for conf in ("ClusterName=x\n#SlurmctldHost=old\n", "\x00\ufffd", "SlurmctldHost=\n", None):
        assert words(names.check(conf=conf)) == Like("not checked: ...slurm.conf...")
    assert names.check({"w-0": SILENT}, persists_seconds=0).status == "fail", "a site's own limits"


def test_all_controllers_are_looked_for_under_their_addresses() -> None:
    conf = "slurmctldhost = one\n SlurmctldHost=two(10.0.0.2) # second\nSlurmctldHost=three(three.example)\n"
    assert dns.controllers(conf) == ["one", "10.0.0.2", "three.example"]


def test_this_machines_resolver_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RES_OPTIONS", "")
    assert any(dns.is_ours(address) for address in dns.resolve("localhost"))
    assert not dns.is_ours("192.0.2.1")  # RFC 5737: nobody's
    assert dns.resolve("10.0.0.2") == ["10.0.0.2"], "an address is no name to look up"


SUCCESS = Ended(code=0, stdout="STATUS:          0\n\n")
NO_SOCKET = 'Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)'
UNAUTHORIZED = "Unauthorized credential for client UID=0"


def ask_munged(node: Node, *, made: Ended | None = None, read: Ended = SUCCESS) -> tuple[str, FakeRunner]:
    def make(argv: Sequence[str]) -> Ended:
        path = Path(argv[-1].removeprefix("--output="))
        assert path.parent.stat().st_mode & 0o077 == 0
        path.write_text("MUNGE:AwQDAAB4:\n")
        return made or Ended(code=0)

    runner = FakeRunner({"munge": make, "unmunge": read})
    return words(munge.CHECK.run(node, runner, Thresholds())), runner


def test_a_credential_that_is_understood_is_well(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    (node.state / "munge").mkdir(parents=True, mode=0o755)  # and is closed to others
    said, runner = ask_munged(node)
    assert said == "ok"
    path = f"{tmp_path}/state/munge/{os.getpid()}"
    assert runner.commands == [
        f"munge --no-input --restrict-uid={os.geteuid()} --output={path}",
        f"unmunge --keys=STATUS --numeric --input={path}",
    ]


def test_a_munged_that_is_gone_is_a_fault_and_no_credential_is_left_behind(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    said, runner = ask_munged(node, made=Ended(code=6, stderr=f"munge: Error: {NO_SOCKET}\n"))
    assert said == f"fail [node]: munged of this pod: {NO_SOCKET}"
    assert not runner.ran("unmunge")
    assert not list((node.state / "munge").iterdir())


@outcomes(
    "read",
    [
        (f"fail [node]: munged of this pod: {NO_SOCKET}", Ended(code=6, stderr=f"unmunge: Error: {NO_SOCKET}\n")),
        ("fail [node]: ...: Invalid credential", Ended(code=14, stderr="unmunge: Error: Invalid credential\n")),
        (f"fail [node]: ...: {UNAUTHORIZED}", Ended(code=18, stderr=f"unmunge: Error: {UNAUTHORIZED}\n")),
        ("not checked: unmunge said something else than a status: ...", Ended(code=0, stdout="STATUS:     17\n")),
    ],
)
def test_a_munged_that_does_not_understand_itself_is_a_fault(tmp_path: Path, expected: str, read: Ended) -> None:
    assert ask_munged(make_node(tmp_path), read=read)[0] == Like(expected)


def test_what_says_nothing_about_munged_is_not_checked(tmp_path: Path) -> None:
    for program, tool in (("made", "munge"), ("read", "unmunge")):
        for ended, why in [
            (Ended(code=NO_PROGRAM, stderr="munge: no such program"), f"there is no {tool} here"),
            (Ended(code=TIMED_OUT, stderr="munge: no answer within 2 s"), f"{tool} did not end in 2 s"),
            (Ended(code=1, stderr="munge: Error: No space left on device"), f"{tool} ended with 1: ..."),
            (Ended(code=15, stderr="unmunge: Error: Expired credential"), f"{tool} ended with 15: ..."),
            (Ended(code=6, stderr="Segmentation fault"), f"{tool} ended with 6: ..."),
        ]:
            assert ask_munged(make_node(tmp_path), **{program: ended})[0] == Like(f"not checked: {why}")
