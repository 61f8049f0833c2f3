"""What `slurmstack status` says."""

from __future__ import annotations

from typing import Any

import pytest

from cli.status import Pod, SlurmNode, Status, login_address, print_status, rest_address
from tests.fakes.kubectl import FakeKubectl, listed


@pytest.mark.parametrize(
    ("status", "address"),
    [({}, "10.0.0.7"), ({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}, "192.0.2.7")],
    ids=["inside", "load balancer"],
)
def test_an_address_is_the_load_balancer_s_where_there_is_one(status: dict[str, Any], address: str) -> None:
    kubectl = FakeKubectl(answers=[({"service"}, listed({"spec": {"clusterIP": "10.0.0.7"}, "status": status}), "")])
    assert login_address(kubectl, "slurm") == address
    assert rest_address(kubectl, "slurm") == f"https://{address}:6820"


def test_without_the_service_there_is_no_address() -> None:
    kubectl = FakeKubectl(answers=[({"service", "rest"}, listed(), "")])
    assert rest_address(kubectl, "slurm") is None


@pytest.mark.parametrize(
    "reason",
    ["health/clock [node]: 90 s off", "[/b] disk [red]bad[/red]", "a\\[b] :gear:"],
    ids=["our own", "markup", "backslash and emoji"],
)
def test_what_comes_from_outside_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    odd = "[red]x[/b]"
    status = Status(
        namespace="slurm",
        pods=(Pod(name=odd, phase=odd, ready=False, restarts=0, node=odd),),
        nodes=(SlurmNode(name=odd, state=odd, reason=reason), SlurmNode(name="w-1", state="drained", reason=reason)),
        configuration=f"rejected: {reason}",
        login_address=odd,
        rest_address=odd,
        healthy=False,
    )
    print_status(status)
    printed = capsys.readouterr().out
    assert printed.count(reason) == 3
    assert printed.count(odd) == 7
