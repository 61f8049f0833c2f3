"""The REST API: closed to the outside unless the stack file says otherwise.

That no container has rights or a root that it can write to, test_confinement.py says of all pods.
"""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509

from cli.program.recording import Recording
from tests.graph import objects
from tests.graph.objects import inputs, named, pod, volumes

PODS = "slurm-rest-pods"


def recorded(**rest: Any) -> Recording:
    return objects.recorded(rest={"enabled": True, **rest})


@pytest.mark.parametrize(
    ("rest", "spec"),
    [
        # Else the policy would see a node's address.
        (
            {"service_type": "LoadBalancer", "source_ranges": ["203.0.113.0/24"]},
            {
                "type": "LoadBalancer",
                "loadBalancerSourceRanges": ["203.0.113.0/24"],
                "externalTrafficPolicy": "Local",
            },
        ),
        ({"service_type": "NodePort", "node_port": 30820}, {"type": "NodePort"}),
    ],
)
def test_it_has_the_address_that_the_stack_file_gives_it(rest: dict[str, Any], spec: dict[str, Any]) -> None:
    found = inputs(recorded(**rest), "slurm-rest-service")["spec"]
    (port,) = found.pop("ports")
    assert {key: value for key, value in found.items() if key != "selector"} == spec
    assert port.get("nodePort") == rest.get("node_port")


def test_the_certificate_of_our_own_is_for_the_names_inside_and_those_of_the_stack_file() -> None:
    recording = recorded(tls={"names": ["api.example.com", "192.0.2.7"]})
    certificate = x509.load_pem_x509_certificate(inputs(recording, "slurm-rest-tls")["stringData"]["tls.crt"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "rest", "rest.slurm", "rest.slurm.svc", "rest.slurm.svc.cluster.local", "api.example.com",
    ]  # fmt: skip
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(recording.outputs["rest_ca"].encode()))
    assert recording.outputs["rest"] == "https://rest.slurm.svc:6820"
    assert "PRIVATE" not in str(recording.outputs)


def test_a_secret_of_ones_own_is_used_as_it_is() -> None:
    recording = recorded(tls={"secret": "mine"})
    assert volumes(pod(recording, PODS))["tls"]["secret"] == {"secretName": "mine", "defaultMode": 0o440}
    assert not named(recording, "slurm-rest-tls")
    assert "rest_ca" not in recording.outputs
