"""slurmdbd, its database, and the policy's Job in the graph."""

from __future__ import annotations

import pytest

from cli.program.recording import Recording
from tests.graph.objects import mounts, named, objects, pod, recorded, volumes

EXTERNAL = {
    "host": "db.example",
    "password": {"name": "db", "key": "secret"},
    "tls": {"ca": {"name": "db-ca", "key": "pem"}, "client": "db-client"},
}
SLURMDBD, DATABASE, JOB = "slurm-accounting-pods", "slurm-database-pods", "slurm-policy-job"


@pytest.fixture(scope="module")
def own() -> Recording:
    return recorded()


def test_an_external_database_leaves_no_object_of_ours_for_one() -> None:
    external = recorded(accounting={"database": {"external": EXTERNAL}})
    for kind in ("StatefulSet", "Service", "PersistentVolumeClaim"):
        assert not [name for name in objects(external, kind) if name.startswith("database")]
    spec = pod(external, SLURMDBD)
    secrets = {name: volume["secret"] for name, volume in volumes(spec).items() if "secret" in volume}
    assert secrets["database-password"]["secretName"] == "db"
    assert secrets["database-password"]["items"] == [{"key": "secret", "path": "password"}]
    assert secrets["database-ca"]["items"] == [{"key": "pem", "path": "ca.crt"}]
    assert mounts(spec["containers"][0], "database-client").keys() == {"/secrets/database-client"}


def test_no_probe_ends_a_slurmdbd_that_converts_the_records_of_years(own: Recording) -> None:
    """It opens its port afterwards. Nor does an update give up before."""
    (slurmdbd,) = pod(own, SLURMDBD)["containers"]
    startup = slurmdbd["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 7 * 86_400
    assert "livenessProbe" not in slurmdbd, "it may be busy, and no restart makes it faster"


def test_without_accounting_there_is_neither_and_no_policy() -> None:
    recording = recorded(accounting={"enabled": False})
    for part in ("slurm-database", "slurm-accounting", "slurm-policy-"):
        assert not [name for name in named(recording, part) if name.startswith(part)]


# The policy
