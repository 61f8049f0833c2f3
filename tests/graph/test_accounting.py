"""slurmdbd and its database in the graph."""

from __future__ import annotations

from tests.graph.objects import mounts, named, objects, pod, recorded, volumes

EXTERNAL = {
    "host": "db.example",
    "password": {"name": "db", "key": "secret"},
    "tls": {"ca": {"name": "db-ca", "key": "pem"}, "client": "db-client"},
}


def test_an_external_database_leaves_no_object_of_ours_for_one() -> None:
    external = recorded(accounting={"database": {"external": EXTERNAL}})
    for kind in ("StatefulSet", "Service", "PersistentVolumeClaim"):
        assert not [name for name in objects(external, kind) if name.startswith("database")]
    spec = pod(external, "slurm-accounting-pods")
    secrets = {name: volume["secret"] for name, volume in volumes(spec).items() if "secret" in volume}
    assert secrets["database-password"]["secretName"] == "db"
    assert secrets["database-password"]["items"] == [{"key": "secret", "path": "password"}]
    assert secrets["database-ca"]["items"] == [{"key": "pem", "path": "ca.crt"}]
    assert mounts(spec["containers"][0], "database-client").keys() == {"/secrets/database-client"}


def test_without_accounting_there_is_neither_and_no_policy() -> None:
    recording = recorded(accounting={"enabled": False})
    for part in ("slurm-database", "slurm-accounting", "slurm-policy-"):
        assert not [name for name in named(recording, part) if name.startswith(part)]
