"""Names: slurmctld's and the node's own, and the difference between unknown, silent and wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from images.health.checks import dns
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node, write

CONF = "ClusterName=test\nSlurmctldHost=controller-0\nSlurmctldPort=6817\n"
GOOD: Mapping[str, list[str] | socket.gaierror] = {"controller-0": ["10.96.0.7"], "w-0": ["10.244.1.5"]}
OURS = "10.244.1.5"

UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def make(tmp_path: Path, conf: str = CONF) -> Node:
    node = make_node(tmp_path)
    write(node.root / "run/slurm/conf/slurm.conf", conf)
    return node


def check(
    node: Node,
    *,
    at: float = 1000.0,
    slow: float = 0.0,
    answers: Mapping[str, list[str] | socket.gaierror] = GOOD,
    **thresholds: float,
) -> Result:
    """Run it; `slow`: seconds that the first look-up takes."""

    def ask(name: str) -> list[str]:
        answer = answers.get(name, UNKNOWN)
        if isinstance(answer, socket.gaierror):
            raise answer
        return answer

    reads: Iterator[float] = iter([at - slow, at])
    return dns.run(
        node,
        FakeRunner(),
        Thresholds({"dns": thresholds}),
        ask=ask,
        ours=lambda address: address == OURS,
        clock=lambda: next(reads, at),
    )


def test_names_that_lead_where_they_should_are_well(tmp_path: Path) -> None:
    result = check(make(tmp_path))

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values == {'dns_seconds{name="w-0"}': 0.0, 'dns_seconds{name="controller-0"}': 0.0}


@pytest.mark.parametrize("name", ["controller-0", "w-0"])
def test_a_name_that_nobody_knows_is_a_fault(tmp_path: Path, name: str) -> None:
    result = check(make(tmp_path), answers={**GOOD, name: UNKNOWN})

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert result.message == f"{name} is not known"


def test_an_own_name_that_leads_elsewhere_is_a_fault(tmp_path: Path) -> None:
    result = check(make(tmp_path), answers={**GOOD, "w-0": ["10.244.9.9"]})

    assert result.status is Status.FAIL
    assert result.message == "w-0, this node's own name, leads to 10.244.9.9, which is not an address of this pod"


def test_one_own_address_of_several_is_enough(tmp_path: Path) -> None:
    assert check(make(tmp_path), answers={**GOOD, "w-0": ["fd00::1", OURS]}).status is Status.OK


def test_silent_servers_are_told_and_after_a_minute_a_fault(tmp_path: Path) -> None:
    node = make(tmp_path)

    found = [check(node, at=1000.0 + 30 * run, answers={**GOOD, "controller-0": SILENT}) for run in range(3)]

    assert [result.status for result in found] == [Status.WARN, Status.WARN, Status.FAIL]
    assert found[0].message == "controller-0: no name server answers"
    assert found[2].message == "controller-0: no name server answers; for 60 s now"
    assert found[2].fault == "node"


def test_an_answer_in_between_begins_anew(tmp_path: Path) -> None:
    node = make(tmp_path)
    check(node, at=1000.0, answers={**GOOD, "w-0": SILENT})
    check(node, at=1030.0)

    assert check(node, at=1060.0, answers={**GOOD, "w-0": SILENT}).status is Status.WARN


def test_slow_answers_are_told_and_never_a_fault(tmp_path: Path) -> None:
    node = make(tmp_path)

    found = [check(node, at=1000.0 + 30 * run, slow=2.5) for run in range(5)]

    assert {result.status for result in found} == {Status.WARN}
    assert found[-1].message == "w-0 took 2.5 s"


def test_a_site_sets_its_own_limits(tmp_path: Path) -> None:
    silent = {**GOOD, "w-0": SILENT}

    assert check(make(tmp_path), answers=silent, persists_seconds=0).status is Status.FAIL


def test_a_resolver_that_fails_otherwise_is_not_checked(tmp_path: Path) -> None:
    broken = socket.gaierror(socket.EAI_SYSTEM, "System error")

    result = check(make(tmp_path), answers={**GOOD, "w-0": broken})

    assert (result.status, result.message) == (Status.NOT_CHECKED, "w-0: System error")


@pytest.mark.parametrize("conf", ["", "ClusterName=x\n#SlurmctldHost=old\n", "\x00\ufffd", "SlurmctldHost=\n"])
def test_a_configuration_without_a_controller_is_not_checked(tmp_path: Path, conf: str) -> None:
    assert check(make(tmp_path, conf)).status is Status.NOT_CHECKED


def test_without_a_configuration_it_is_not_checked(tmp_path: Path) -> None:
    result = check(make_node(tmp_path))

    assert result.status is Status.NOT_CHECKED
    assert "slurm.conf" in result.message


def test_all_controllers_are_looked_for_under_their_addresses() -> None:
    conf = "slurmctldhost = one\n SlurmctldHost=two(10.0.0.2) # second\nSlurmctldHost=three(three.example)\n"

    assert dns.controllers(conf) == ["one", "10.0.0.2", "three.example"]


def test_this_machines_resolver_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RES_OPTIONS", "")
    addresses = dns.resolve("localhost")

    assert any(dns.is_ours(address) for address in addresses)
    assert not dns.is_ours("192.0.2.1")  # RFC 5737: nobody's


def test_an_address_is_no_name_to_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RES_OPTIONS", "")

    assert dns.resolve("10.0.0.2") == ["10.0.0.2"]
