"""Logs go to a server of the site's, if the stack file names one, and by nothing that may do more than that."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.reachability import network
from tests.recordings import record
from tests.stacks import with_change

OTLP = {
    "endpoint": "https://loki.example.com/otlp",
    "image": "registry.example.com/otel/collector-contrib:0.165.0",
    "headers": {"Authorization": "loki-token", "X-Scope-OrgID": "loki-tenant"},
}


def recorded(**otlp: Any) -> Recording:
    return record(with_change(stacks.existing_full(), "logs", {"otlp": {**OTLP, **otlp}}), stack="prod")


def inputs(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name]
    return dict(reveal(found.inputs))


def pod() -> dict[str, Any]:
    return dict(inputs(recorded(), "slurm-logs-pods")["spec"]["template"]["spec"])


def test_by_default_there_is_none() -> None:
    found = record(stacks.existing_full(), stack="prod")
    assert not [item.name for item in found if "slurm-logs" in item.name]


def test_it_reads_the_machine_s_logs_of_pods_and_has_no_other_part_of_it() -> None:
    spec = pod()
    (container,) = spec["containers"]
    machine = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert machine == {"logs": "/var/log/pods"}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["logs"]["readOnly"] is True
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert spec["automountServiceAccountToken"] is False
    assert "ports" not in container


def test_it_is_on_every_machine_where_a_pod_may_be() -> None:
    spec = pod()
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in spec


def test_contents_of_headers_are_known_to_their_secrets_alone() -> None:
    found = recorded()
    (files,) = [item for item in found if item.name == "slurm-logs-config"]
    config = json.loads(reveal(files.inputs)["data"]["collector.yaml"])
    headers = config["exporters"]["otlphttp"]["headers"]
    assert headers == {"Authorization": "${env:HEADER_0}", "X-Scope-OrgID": "${env:HEADER_1}"}
    env = {one["name"]: one for one in pod()["containers"][0]["env"]}
    secrets = [env[f"HEADER_{number}"]["valueFrom"]["secretKeyRef"] for number in range(2)]
    assert secrets == [{"name": "loki-token", "key": "value"}, {"name": "loki-tenant", "key": "value"}]


def test_it_reads_the_namespace_s_pods_but_not_itself() -> None:
    config = json.loads(inputs(recorded(), "slurm-logs-config")["data"]["collector.yaml"])
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
    assert config["exporters"]["otlphttp"]["endpoint"] == OTLP["endpoint"]


def test_no_other_pod_has_a_container_of_its_name() -> None:
    specs = [reveal(item.inputs).get("spec") or {} for item in recorded()]
    pods = [spec["template"]["spec"] for spec in specs if "spec" in spec.get("template", {})]
    names = [one["name"] for one_pod in pods for one in (*one_pod.get("initContainers", []), *one_pod["containers"])]
    assert names.count(pod()["containers"][0]["name"]) == 1


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("slurmctld: error: Node a-0 has bad JobId=5_3(7)", {"program": "slurmctld", "level": "error", "job": "5"}),
        ("slurmd-a-0: debug2: [5.batch] done", {"program": "slurmd-a-0", "level": "debug", "job": "5"}),
        ("munged: Notice: Starting munge-0.5.16 daemon", {"program": "munged", "level": "Notice"}),
        ("health-epilog: job 17: removed 1 files", {"program": "health-epilog", "job": "17"}),
        ("2026-11-26  1:04:24 0 [Note] InnoDB: ready", {}),
    ],
)
def test_a_line_s_program_level_and_job_are_told_where_it_has_them(text: str, known: dict[str, str]) -> None:
    config = json.loads(inputs(recorded(), "slurm-logs-config")["data"]["collector.yaml"])
    operators = config["receivers"]["filelog"]["operators"]
    found: dict[str, str] = {}
    for operator in operators:
        match = re.search(operator["regex"], text) if "regex" in operator else None
        found |= match.groupdict() if match else {}
    assert found == known


def test_another_configuration_gives_new_pods() -> None:
    def name(**otlp: Any) -> str:
        return str(inputs(recorded(**otlp), "slurm-logs-config")["metadata"]["name"])

    assert name() != name(endpoint="https://other.example.com/otlp")


@pytest.mark.parametrize(
    ("endpoint", "port", "reached", "closed"),
    [
        ("https://loki.example.com/otlp", 443, ["151.101.0.223", "10.0.0.1"], ["169.254.169.254"]),
        ("http://loki.monitoring.svc:3100/otlp", 3100, ["10.0.0.1"], ["169.254.169.254"]),
        ("http://10.1.2.3/otlp", 80, ["10.1.2.3"], ["10.1.2.4", "151.101.0.223"]),
        ("http://[fd12::1]:4318", 4318, ["fd12::1"], ["fd12::2"]),
    ],
)
def test_policies_let_it_reach_its_server_and_nobody_it(
    endpoint: str, port: int, reached: list[str], closed: list[str]
) -> None:
    found = network(recorded(endpoint=endpoint))
    assert all(found.allows("log-shipper", address, port) for address in reached)
    assert not any(found.allows("log-shipper", address, port) for address in closed)
    assert not any(found.allows("log-shipper", address, port + 1) for address in reached)
    assert not any(found.allows(source, "log-shipper", 4318) for source in ("worker", "login", "controller"))
