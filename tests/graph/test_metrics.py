"""The exporter: what it may do, whom it is, and what changes where figures are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def named(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name]
    return dict(reveal(found.inputs))


def differing(before: Recording, after: Recording) -> set[str]:
    """Names of resources whose inputs differ, or that only one of them has."""
    one, two = ({item.name: repr(reveal(item.inputs)) for item in recording} for recording in (before, after))
    return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}


def sections(**changes: Any) -> dict[str, Any]:
    """A stack with all components and figures."""
    found = with_change(stacks.existing_full(), "monitoring.enabled", True)
    for path, value in changes.items():
        found = with_change(found, path.replace("__", "."), value)
    return found


def container(recording: Recording) -> dict[str, Any]:
    (found,) = named(recording, "slurm-exporter-pods")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(recording: Recording) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(recording)["env"]}


def test_figures_restart_nothing_but_workers_which_wait_for_their_jobs() -> None:
    """A worker's pod has a port more, and the program behind it is started before jobs can take that."""
    before = record(with_change(sections(), "monitoring.enabled", False), stack="prod")
    after = record(sections(), stack="prod")
    assert {name for name in differing(before, after) if "exporter" not in name} == {
        *(f"slurm-network-policies-{name}" for name in ("controller", "slurmdbd", "worker")),
        "slurm-pool-cpu-pods", "slurm-pool-gpu-pods", "slurm-pool-plain-pods",
    }  # fmt: skip


def test_the_exporter_has_no_right_and_no_key() -> None:
    recording = record(sections(), stack="prod")
    assert not [item.name for item in recording if "exporter" in item.name and ("role" in item.name)]
    spec = named(recording, "slurm-exporter-pods")["spec"]["template"]["spec"]
    mounted = {mount["name"] for mount in container(recording)["volumeMounts"]}
    assert mounted == {"munge", "config", "rest-tls"}
    (tls,) = [volume for volume in spec["volumes"] if volume["name"] == "rest-tls"]
    assert [item["key"] for item in tls["secret"]["items"]] == ["tls.crt"]


def test_pods_say_where_their_figures_are() -> None:
    template = named(record(sections(), stack="prod"), "slurm-exporter-pods")["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true", "prometheus.io/port": "9341", "prometheus.io/path": "/metrics",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "settings", "by_slurmctld", "uid", "people"),
    [
        ("24.11", {}, False, 953, "yes"),
        ("24.11", {"PrivateData": ["jobs", "users"]}, False, 64030, "no"),
        ("26.05", {}, True, 953, "yes"),
        ("26.05", {"PrivateData": "none"}, True, 953, "yes"),
        ("26.05", {"PrivateData": "jobs"}, False, 64030, "no"),
        ("26.05", {"PrivateData": "jobs", "MetricsParameters": "ignore_private_data"}, True, 64030, "yes"),
        ("26.05", {"MetricsAuthUsers": "alice"}, False, 64030, "no"),
    ],
)
def test_slurms_own_figures_come_from_exactly_one_place_and_those_of_people_from_the_exporter(
    version: str, settings: dict[str, Any], by_slurmctld: bool, uid: int, people: str
) -> None:
    given = sections(slurm__version=version, slurm__settings=settings)
    recording = record(given, stack="prod")
    assert environment(recording)["SLURMS_OWN"] == ("no" if by_slurmctld else "yes")
    assert environment(recording)["BY_PERSON"] == people
    assert container(recording)["securityContext"]["runAsUser"] == uid
    conf = reveal(next(item.inputs for item in recording if item.name == "slurm-configuration-files"))["data"]
    assert ("MetricsType=metrics/openmetrics\n" in conf["slurm.conf"]) == by_slurmctld


@pytest.mark.parametrize(("component", "number"), [("exporter", 9341), ("worker", 9306)])
def test_users_do_not_reach_the_figures_and_other_namespaces_do(component: str, number: int) -> None:
    spec = named(record(sections(), stack="prod"), f"slurm-network-policies-{component}")["spec"]
    assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
    (ingress,) = spec["ingress"]
    ((peer,), (port,)) = ingress["from"], ingress["ports"]
    assert port["port"] == number
    assert peer == {
        "namespaceSelector": {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["slurm"]}]
        }
    }
