"""What `slurmstack status` says about addresses."""

from __future__ import annotations

from typing import Any

import pytest

from cli.status import login_address, rest_address
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
