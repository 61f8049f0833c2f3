"""The dashboard: one more container of the REST API's pods, and nothing else."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.reachability import network
from tests.recordings import record
from tests.stacks import with_change


def recorded(*, dashboard: bool, **sections: Any) -> Recording:
    changed = with_change(stacks.existing(), "rest", {"enabled": True})
    changed = with_change(changed, "dashboard", {"enabled": dashboard})
    for name, section in sections.items():
        changed = with_change(changed, name.replace("__", "."), section)
    return record(changed, stack="prod")


def pod(recording: Recording) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == "slurm-rest-pods"]
    return dict(reveal(found.inputs)["spec"]["template"]["spec"])


def test_it_brings_no_object_of_its_own_and_changes_no_other() -> None:
    without, with_page = ({item.name: reveal(item.inputs) for item in recorded(dashboard=on)} for on in (False, True))
    assert without.keys() == with_page.keys()
    assert [name for name, inputs in with_page.items() if inputs != without[name]] == ["slurm-rest-pods"]


def test_its_container_has_no_rights_no_secret_and_cannot_write_to_its_root() -> None:
    (page,) = [one for one in pod(recorded(dashboard=True))["initContainers"] if one["name"] == "dashboard"]
    assert page["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {found["name"] for found in page["volumeMounts"]} == {"config", "run"}
    assert "env" not in page
    assert page["restartPolicy"] == "Always", "a sidecar ends after nginx, whose last requests it answers"


def test_nginx_leads_to_it_only_where_it_is_wanted() -> None:
    for wanted in (True, False):
        (proxy,) = pod(recorded(dashboard=wanted))["containers"]
        assert ("DASHBOARD" in str(proxy.get("env"))) == wanted


def test_plots_come_from_the_prometheus_of_the_namespace_and_only_where_there_is_one() -> None:
    recording = recorded(dashboard=True, monitoring={"install": True})
    (page,) = [one for one in pod(recording)["initContainers"] if one["name"] == "dashboard"]
    assert page["env"] == [{"name": "PROMETHEUS", "value": "http://prometheus:9090"}]


def test_it_reaches_prometheus_through_the_network_policies_and_jobs_do_not_through_it() -> None:
    allowed = network(recorded(dashboard=True, monitoring={"install": True})).policies
    (rest,) = [spec for spec in allowed if spec["podSelector"].get("matchLabels", {}).get(COMPONENT) == "rest"]
    towards = [rule for rule in rest["egress"] if {"port": 9090, "protocol": "TCP"} in rule["ports"]]
    (peer,) = towards[0]["to"]
    assert peer["podSelector"]["matchLabels"][COMPONENT] == "prometheus"
    without = network(recorded(dashboard=False, monitoring={"install": True})).policies
    (rest,) = [spec for spec in without if spec["podSelector"].get("matchLabels", {}).get(COMPONENT) == "rest"]
    assert "9090" not in str(rest["egress"])


COMPONENT = "app.kubernetes.io/component"
