"""Applying: both ways give the objects that were rendered; a second time changes nothing; changes by hand come back."""

from __future__ import annotations

from typing import Any

from cli.change.plan import key
from cli.program.manifests import manifests
from cli.program.recording import record
from config.base import parse_bytes
from tests.e2e.harness import SlurmOnKubernetes


def _contains(live: Any, wanted: Any) -> bool:
    """Whether everything that was asked for is there; the server adds defaults of its own and leaves out what is
    empty."""
    if live is None and wanted in ("", [], {}):
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_contains, live, wanted))
    return bool(live == wanted) or _bytes(live) == _bytes(wanted) is not None


def _bytes(value: Any) -> int | None:
    """Size of a quantity, which the server writes in its shortest form."""
    try:
        return parse_bytes(value)
    except (TypeError, ValueError):
        return None


def test_the_cluster_has_the_objects_that_the_program_registers(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    recorded = manifests(record(slurm.sections, stack=slurm.namespace))
    for manifest in recorded:
        scope = [] if manifest.cluster_scoped else ["-n", slurm.namespace]
        (live,) = slurm.kubectl.items(manifest.kind, manifest.name, *scope)
        wanted = {
            name: part for name, part in manifest.document.items() if manifest.kind != "Secret" or "ata" not in name
        }
        assert _contains(live, wanted), key(manifest.document)


def test_a_second_apply_changes_nothing(two_nodes: SlurmOnKubernetes) -> None:
    before = two_nodes.pod_uids()
    two_nodes.up()
    assert two_nodes.pod_uids() == before
    if two_nodes.engine == "kubectl":
        assert two_nodes.preview()["changes"] == []


def test_changes_made_by_hand_are_shown_and_come_back(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    namespace = ("-n", slurm.namespace)
    slurm.kubectl.run(
        "patch", "service", "login", *namespace, "-p", '{"spec": {"ports": [{"port": 22, "targetPort": 23}]}}'
    )
    slurm.kubectl.run("delete", "networkpolicy", "login", *namespace)
    if slurm.engine == "kubectl":
        shown = {(change["action"], change["kind"], change["name"]) for change in slurm.preview()["changes"]}
        assert shown == {("update", "Service", "login"), ("create", "NetworkPolicy", "login")}
    slurm.up()
    (service,) = slurm.kubectl.items("service", "login", *namespace)
    assert service["spec"]["ports"][0]["targetPort"] == 22
    assert slurm.kubectl.items("networkpolicy", "login", *namespace)


def test_the_jail_cannot_be_shrunk_by_accident(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    before = slurm.sections
    done = slurm.change("jail.size", "1Gi", check=False)
    slurm.sections = before
    assert done.returncode == 3
    assert "jail.size: 1Gi is less than the 20Gi" in done.stderr


def test_a_renamed_pool_is_explained_before_it_is_done(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    before = slurm.sections
    renamed = {"renamed": before["worker_nodes"]["default"]}
    slurm.sections = {**before, "worker_nodes": renamed, "partitions": {"main": {"pools": ["renamed"]}}}
    costs = {effect["name"]: effect["cost"] for effect in slurm.preview()["effects"]}
    slurm.sections = before
    assert costs["default"].startswith("pool 'default' leaves: its 2 nodes take no more jobs")
