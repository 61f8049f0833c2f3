"""What a stack on Nebius registers: resources that the API takes, protected, reachable, with narrow access."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import Unknown
from components.clouds.nebius.immutable import (
    ALLOCATION,
    CLUSTER,
    FILESYSTEM,
)
from tests import stacks
from tests.graph import nebius_api
from tests.graph.nebius_recordings import STACKS, minimum, one
from tests.recordings import of_type, record

# The resources


def test_the_api_takes_every_resource(made: Recording) -> None:
    assert nebius_api.check(made) == {}


@pytest.mark.parametrize("stack", STACKS)
def test_with_nothing_known_yet_the_program_registers_the_same_resources(stack: str) -> None:
    sections = getattr(stacks, stack)()
    known, unknown = record(sections, stack="test"), record(sections, stack="test", preview=True)
    assert {item.urn for item in unknown} == {item.urn for item in known}
    (provider,) = of_type(unknown, "pulumi:providers:kubernetes")
    assert isinstance(provider.inputs["kubeconfig"], Unknown), "else nothing was unknown in this run"
    assert provider.inputs["clusterIdentifier"] == one(known, provider.type, "kubernetes").inputs["clusterIdentifier"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {CLUSTER, FILESYSTEM}),
        ({"protect": False}, set()),
        ({"cloud": {**stacks.nebius_full()["cloud"], "allow_replacement": True}}, set()),
    ],
)
def test_what_holds_data_is_protected_unless_the_stack_says_otherwise(change: dict[str, Any], expected: Any) -> None:
    recording = record({**stacks.nebius_full(), **change}, stack="test")
    assert {item.type for item in recording if item.protect and item.type.startswith("nebius:")} == expected


def test_a_private_cluster_has_no_public_endpoint_and_is_reached_by_the_private_one() -> None:
    recording = minimum("cloud.kubernetes.public_endpoint", value=False)
    assert "endpoints" not in one(recording, CLUSTER, "slurm").inputs["controlPlane"]
    assert json.loads(recording.outputs["kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://private.invalid"


# The ways in


def test_the_login_service_keeps_its_address(full: Recording) -> None:
    (address,) = of_type(full, ALLOCATION)
    assert address.inputs["ipv4Public"] == {"subnetId": "full-subnet-id"}
    (service,) = [item for item in of_type(full, "kubernetes:core/v1:Service") if item.name.endswith("login-service")]
    assert service.inputs["metadata"]["annotations"]["nebius.com/load-balancer-allocation-id"] == address.id
    assert full.outputs["login_address"] == "192.0.2.1"


def test_an_internal_load_balancer_gets_a_private_address() -> None:
    login = {"service_type": "LoadBalancer", "annotations": {"nebius.com/load-balancer-type": "internal"}}
    (address,) = of_type(minimum("login", login), ALLOCATION)
    assert address.inputs["ipv4Private"] == {"subnetId": "vpcsubnet-e00example"}
    assert "ipv4Public" not in address.inputs


def test_without_a_load_balancer_no_address_is_taken() -> None:
    assert not of_type(minimum("login", {"service_type": "ClusterIP"}), ALLOCATION)


@pytest.mark.parametrize(
    ("credentials", "command"),
    [("cli", "nebius mk8s v1 cluster get-token --format json"), ("sdk", "slurmstack kube-token")],
)
def test_kubectl_asks_for_a_token_each_time_and_none_is_kept(credentials: str, command: str) -> None:
    config = json.loads(minimum("cloud.credentials", credentials).outputs["kubeconfig"])
    (user,) = config["users"]
    assert set(user["user"]) == {"exec"}
    assert " ".join([user["user"]["exec"]["command"], *user["user"]["exec"]["args"]]) == command
    (cluster,) = config["clusters"]
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"a certificate"
    assert cluster["cluster"]["server"] == "https://public.invalid"
