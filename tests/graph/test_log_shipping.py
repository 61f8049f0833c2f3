"""Logs go to a server of the site's, if the stack file names one, and by nothing that may do more than that."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph import objects
from tests.graph.objects import inputs
from tests.graph.objects import pod as pod_of
from tests.graph.reachability import network

OTLP = {
    "endpoint": "https://loki.example.com/otlp",
    "image": "registry.example.com/otel/collector-contrib:0.165.0",
    "headers": {"Authorization": "loki-token", "X-Scope-OrgID": "loki-tenant"},
}


def recorded(**otlp: Any) -> Recording:
    return objects.recorded(stacks.existing_full(), logs={"otlp": {**OTLP, **otlp}})


def pod() -> dict[str, Any]:
    return pod_of(recorded(), "slurm-logs-pods")


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """The collector's."""
    found: dict[str, Any] = json.loads(inputs(recorded(), "slurm-logs-config")["data"]["collector.yaml"])
    return found


def test_it_reads_the_namespace_s_pods_but_not_itself(config: dict[str, Any]) -> None:
    receiver = config["receivers"]["filelog"]
    places = {
        "slurm_controller-0_uid/slurmctld": True,
        "slurm_log-shipper-gpu-0_uid/slurmd": True,
        "slurm_log-shipper-1000_uid/slurmd": True,
        "slurm_log-shipper-x4k2p_uid/log-shipper": False,
        "kube-system_controller-0_uid/slurmctld": False,
    }

    def is_in(place: str, key: str) -> bool:
        path = PurePosixPath("/var/log/pods") / place / "0.log"
        return any(path.match(pattern) for pattern in receiver[key])

    assert {place: is_in(place, "include") and not is_in(place, "exclude") for place in places} == places


@pytest.mark.parametrize(
    ("endpoint", "port"), [("https://loki.example.com/otlp", 443), ("http://[fd12::1]:4318", 4318)]
)
def test_policies_let_it_reach_its_server_s_port_and_nobody_it(endpoint: str, port: int) -> None:
    found = network(recorded(endpoint=endpoint))
    assert all(found.allows("log-shipper", address, port) for address in ("151.101.0.223", "10.0.0.1", "fd12::1"))
    assert not found.allows("log-shipper", "169.254.169.254", port)
    assert not found.allows("log-shipper", "10.0.0.1", port + 1)
    assert not any(found.allows(source, "log-shipper", 4318) for source in ("worker", "login", "controller"))
