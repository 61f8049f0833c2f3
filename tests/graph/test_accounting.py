"""slurmdbd and its database in the graph."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording, Registration
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record

EXTERNAL = {
    "host": "db.example",
    "password": {"name": "db", "key": "secret"},
    "tls": {"ca": {"name": "db-ca", "key": "pem"}, "client": "db-client"},
}


def _named(recording: Recording, kind: str, name: str) -> list[Registration]:
    found = [item for item in recording if item.type.endswith(f":{kind}")]
    return [item for item in found if reveal(item.inputs)["metadata"]["name"] == name]


def _pod(recording: Recording, name: str) -> dict[str, Any]:
    (item,) = _named(recording, "StatefulSet", name)
    spec: dict[str, Any] = reveal(item.inputs)["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def own() -> Recording:
    return record(stacks.existing(), stack="test")


@pytest.fixture(scope="module")
def external() -> Recording:
    return record(stacks.existing() | {"accounting": {"database": {"external": EXTERNAL}}}, stack="test")


def test_the_records_are_protected_as_the_queue_is(own: Recording) -> None:
    (claim,) = _named(own, "PersistentVolumeClaim", "database-data")
    (state,) = _named(own, "PersistentVolumeClaim", "controller-state")
    assert claim.protect is state.protect is True


def test_mariadb_knows_its_limit_and_has_time_to_end(own: Recording) -> None:
    pod = _pod(own, "database")
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["memory"] == "512Mi"
    assert {"name": "MEMORY_LIMIT", "value": str(512 * 2**20)} in container["env"]
    assert pod["terminationGracePeriodSeconds"] >= 60


def test_an_external_database_leaves_no_object_of_ours_for_one(external: Recording) -> None:
    for kind in ("StatefulSet", "Service", "PersistentVolumeClaim"):
        assert not [item for item in external if item.name.startswith("slurm-database") and item.type.endswith(kind)]
    volumes = {volume["name"]: volume for volume in _pod(external, "slurmdbd")["volumes"]}
    assert volumes["database-password"]["secret"]["secretName"] == "db"
    assert volumes["database-password"]["secret"]["items"] == [{"key": "secret", "path": "password"}]
    assert volumes["database-ca"]["secret"]["items"] == [{"key": "pem", "path": "ca.crt"}]
    (container,) = _pod(external, "slurmdbd")["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["database-client"] == "/secrets/database-client"


def test_another_slurmdbd_conf_is_another_pod_and_no_password_is_in_it(own: Recording) -> None:
    changed = record(stacks.existing() | {"accounting": {"settings": {"DebugLevel": "debug"}}}, stack="test")

    def config(recording: Recording) -> str:
        volumes = {volume["name"]: volume for volume in _pod(recording, "slurmdbd")["volumes"]}
        return str(volumes["slurmdbd-conf"]["configMap"]["name"])

    assert config(own) != config(changed)
    (item,) = _named(own, "ConfigMap", config(own))
    assert "StoragePass=" not in reveal(item.inputs)["data"]["slurmdbd.conf"]


def test_no_probe_ends_a_slurmdbd_that_converts_the_records_of_years() -> None:
    """It opens its port afterwards. Nor does an update give up before."""
    (slurmdbd,) = _pod(record(stacks.existing(), stack="test"), "slurmdbd")["containers"]
    startup = slurmdbd["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 7 * 86_400
    assert "livenessProbe" not in slurmdbd, "it may be busy, and no restart makes it faster"


def test_without_accounting_there_is_neither_and_no_policy() -> None:
    recording = record(stacks.existing() | {"accounting": {"enabled": False}}, stack="test")
    names = {item.name for item in recording}
    assert not [name for name in names if name.startswith(("slurm-database", "slurm-accounting", "slurm-policy-"))]
