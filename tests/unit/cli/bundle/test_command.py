"""`slurmstack support-bundle`, on a cluster with secrets in places where they should not be."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import bundle as command
from cli.errors import Failure
from tests.fakes.written_cluster import FakeCluster, pod, worker
from tests.stacks import dev

PODS = (pod("controller-0", "controller", "slurmctld", restarts=1), worker("a-0"))
LOGS = {
    "controller-0/slurmctld": "2026-11-25T16:27:51.5Z slurmctld: running\n",
    "controller-0/slurmctld previous": "2026-11-25T16:20:51.5Z slurmctld: fatal: no room\n",
}
SLURM = {"sacct": "JobID|User\n5|alice\n", "scontrol": "ClusterName=slurm\n", "sdiag": "x\n", "squeue": "x\n"}
KEY = b"k3y-of-the-database!"


def secret(name: str, **values: bytes) -> dict[str, Any]:
    data = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in values.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}


SECRETS = (secret("database-password", password=KEY), secret("munge-key", munge_key=bytes(range(100, 228))))


def cluster(*, secrets: Sequence[Any] = SECRETS, **more: Any) -> FakeCluster:
    objects = {"secrets": secrets, "configmaps": [{"kind": "ConfigMap", "data": {}}], **more.pop("objects", {})}
    return FakeCluster(**{"pods": PODS, "logs": LOGS, "slurm": SLURM, "objects": objects, **more})


def bundle(monkeypatch: pytest.MonkeyPatch, there: FakeCluster, *arguments: str) -> Result:
    monkeypatch.setattr(command, "reach", lambda _: there)
    return CliRunner().invoke(app, ["support-bundle", *arguments])


def files(path: Path) -> dict[str, str]:
    """What is in an archive, without the name of its folder."""
    with tarfile.open(path) as archive:
        found = {}
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.partition("/")[2]] = content.read().decode()
        return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "case.tar.gz"


def test_it_has_what_helps_and_lists_it(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    result = bundle(monkeypatch, cluster(), "--output", str(archive))
    assert result.exit_code == 0, result.output
    found = files(archive)
    for name in (
        "kubernetes/version.json", "stack.yaml", "kubernetes/events.json", "status.json", "doctor.json",
        "kubernetes/pods.json", "kubernetes/configmaps.json", "kubernetes/secrets.json", "slurm/config.txt",
        "kubernetes/daemonsets.json", "slurm/sacct.txt", "slurm/sdiag.txt", "logs/a-0/slurmd.log",
        "logs/controller-0/slurmctld.log", "logs/controller-0/slurmctld.previous.log",
    ):  # fmt: skip
        assert name in found
        assert f"\n{name} " in found["MANIFEST.txt"]
    assert "fatal: no room" in found["logs/controller-0/slurmctld.previous.log"]
    assert yaml.safe_load(found["stack.yaml"])["config"]["slurmstack:worker_nodes"] == dev()["worker_nodes"]
    assert json.loads(found["kubernetes/secrets.json"]) == {
        "database-password": ["password"],
        "munge-key": ["munge.key"],
    }
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


def test_what_cannot_be_read_is_listed_with_its_reason_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch, archive: Path
) -> None:
    refused = frozenset({"nodes", "persistentvolumes", "a-0/slurmd", "events"})
    result = bundle(monkeypatch, cluster(refused=refused), "-o", str(archive))
    assert result.exit_code == 0
    assert "could not be read" in result.stdout
    missing = files(archive)["MANIFEST.txt"].partition("Not read:")[2]
    for name in (
        "kubernetes/nodes.json",
        "kubernetes/persistentvolumes.json",
        "logs/a-0/slurmd.log",
        "kubernetes/events.json",
    ):
        line = next(line for line in missing.splitlines() if line.startswith(name))
        assert "Forbidden" in line
    assert "kubernetes/pods.json" in files(archive)


def test_where_secrets_cannot_be_read_it_warns(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    log = {"a-0/slurmd": "2026-11-25T16:00:00Z password=hunter2\n"}
    result = bundle(monkeypatch, cluster(refused=frozenset({"secrets"}), logs=log), "-o", str(archive))
    assert result.exit_code == 0
    assert "WARNING: the Secrets could not be read" in result.stdout
    assert files(archive)["logs/a-0/slurmd.log"] == "2026-11-25T16:00:00Z password=<removed>\n"


def test_where_nothing_can_be_read_it_fails_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    monkeypatch.setattr(FakeCluster, "_answer", lambda *_: ("", "Error from server (Forbidden): no"))
    result = bundle(monkeypatch, cluster(), "-o", str(archive))
    assert isinstance(result.exception, Failure)
    assert result.exception.code == 1
    assert "nothing of namespace slurm could be read" in result.exception.message
    assert not archive.exists()


def test_a_directory_that_is_not_there_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = bundle(monkeypatch, there := cluster(), "-o", str(tmp_path / "none" / "x.tar.gz"))
    assert isinstance(result.exception, Failure)
    assert "No such file or directory" in result.exception.message
    assert there.asked == []


def test_a_long_log_loses_its_beginning_and_says_so(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    log = "".join(f"2026-11-25T16:00:00Z line {number} {'x' * 1000}\n" for number in range(3000))
    bundle(monkeypatch, cluster(logs={"a-0/slurmd": log}), "-o", str(archive))
    first, _, rest = files(archive)["logs/a-0/slurmd.log"].partition("\n")
    assert first.endswith("characters are left out]")
    assert log.endswith(rest)
    assert len(rest) == 2 * 1024 * 1024
