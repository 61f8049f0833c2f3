"""Names: slurmctld's and the node's own, and the difference between unknown, silent and wrong."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from images.common.health.contract import Result, Thresholds
from images.health.checks import dns
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node, write
from tests.unit.images.health.tables import Like, table, words

Answers = Mapping[str, list[str] | socket.gaierror]

CONF = "ClusterName=test\nSlurmctldHost=controller-0\nSlurmctldPort=6817\n"
OURS = "10.244.1.5"
GOOD: Answers = {"controller-0": ["10.96.0.7"], "w-0": [OURS]}
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
BROKEN = socket.gaierror(socket.EAI_SYSTEM, "System error")
ELSEWHERE = "w-0, this node's own name, leads to 10.244.9.9, which is not an address of this pod"
NO_ANSWER = "controller-0: no name server answers"


def check(
    tmp_path: Path,
    answers: Answers = GOOD,
    *,
    at: float = 1000.0,
    slow: float = 0.0,
    conf: str | None = CONF,
    **limits: float,
) -> Result:
    """Run it; `slow`: seconds that the first look-up takes."""
    node = make_node(tmp_path)
    if conf is not None:
        write(node.root / dns.CONFIGURATION, conf)

    def ask(name: str) -> list[str]:
        answer = {**GOOD, **answers}.get(name, UNKNOWN)
        if isinstance(answer, socket.gaierror):
            raise answer
        return answer

    reads = iter([at - slow, at])
    clock = lambda: next(reads, at)  # noqa: E731
    return dns.run(node, FakeRunner(), Thresholds({"dns": limits}), ask=ask, ours=OURS.__eq__, clock=clock)


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
def test_names_lead_somewhere(tmp_path: Path, answers: Answers, expected: str) -> None:
    assert words(check(tmp_path, answers)) == expected


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
def test_runs_in_a_row(tmp_path: Path, runs: list[Answers], slow: float, expected: list[str]) -> None:
    said = [words(check(tmp_path, answers, at=1000.0 + 30 * run, slow=slow)) for run, answers in enumerate(runs)]
    assert said == [Like(form) for form in expected]


def test_a_configuration_without_a_controller_is_not_checked(tmp_path: Path) -> None:
    for conf in ("ClusterName=x\n#SlurmctldHost=old\n", "\x00\ufffd", "SlurmctldHost=\n", None):
        assert words(check(tmp_path, conf=conf)) == Like("not checked: ...slurm.conf...")
    assert check(tmp_path, {"w-0": SILENT}, persists_seconds=0).status == "fail", "a site's own limits"


def test_all_controllers_are_looked_for_under_their_addresses() -> None:
    conf = "slurmctldhost = one\n SlurmctldHost=two(10.0.0.2) # second\nSlurmctldHost=three(three.example)\n"
    assert dns.controllers(conf) == ["one", "10.0.0.2", "three.example"]


def test_this_machines_resolver_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RES_OPTIONS", "")
    assert any(dns.is_ours(address) for address in dns.resolve("localhost"))
    assert not dns.is_ours("192.0.2.1")  # RFC 5737: nobody's
    assert dns.resolve("10.0.0.2") == ["10.0.0.2"], "an address is no name to look up"
