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
from cli.bundle.archive import REMOVED, Redactor, redactor, without_secrets
from cli.commands import bundle as command
from cli.errors import Failure
from tests.fakes.written_cluster import FakeCluster, pod, worker
from tests.stacks import dev
from tests.unit.cli.command_line import stack_file

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


def everywhere(text: str, tmp_path: Path) -> tuple[FakeCluster, Path]:
    """A cluster, and a stack file, that have a text wherever somebody may have written it."""
    variable = {"name": "EXTRA", "value": text}
    noisy = pod("a-0", "worker", "slurmd", restarts=1)
    noisy["spec"]["containers"][0] |= {"env": [variable], "args": ["--key", text]}
    noisy["metadata"]["annotations"] = {"last": json.dumps({"spec": {"env": [variable]}})}
    log = "".join(f"2026-11-25T16:00:00.1Z said {line}\n" for line in text.split("\n"))
    objects = {
        "configmaps": [{"kind": "ConfigMap", "data": {"file": f"[x]\n{text}\n", "json": json.dumps([text])}}],
        "nodes": [{"metadata": {"annotations": {"x": text}}}],
        "events": [{"kind": "Event", "message": f"failed: {text}"}],
    }
    there = cluster(
        secrets=[secret("planted", value=text.encode())],
        pods=(noisy,),
        logs={"a-0/slurmd": log, "a-0/slurmd previous": log},
        slurm={**SLURM, "scontrol": f"Comment={text}\n", "sacct": f"5|{text}\n"},
        objects=objects,
        refused=frozenset({text, "leases"}),
    )
    file = stack_file(tmp_path, dev() | {"cluster": {"namespace": "slurm"}})
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["config"] |= {"other:comment": f"it is {text}", "other:key": {"secure": text}, "other:list": [text]}
    file.write_text(f"# {text.splitlines()[0]}\n{yaml.safe_dump(document)}", encoding="utf-8")
    return there, file


def test_no_file_has_a_planted_secret(monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path) -> None:
    text = 'a key with "quotes" \\ in it\nand a second line'
    there, file = everywhere(text, tmp_path)
    result = bundle(monkeypatch, there, "--config", str(file), "-o", str(archive))
    assert result.exit_code == 0, result.output
    found = files(archive)
    forms = {base64.b64encode(text.encode()).decode(), *text.splitlines()}
    forms |= {json.dumps(form)[1:-1] for form in forms}
    assert [(name, form) for name, content in found.items() for form in forms if form in content] == []
    marked = {name for name, content in found.items() if "<removed: secret planted/value>" in content}
    of_kubernetes = {f"kubernetes/{kind}.json" for kind in ("pods", "configmaps", "nodes", "events")}
    assert {*of_kubernetes, "slurm/sacct.txt", "logs/a-0/slurmd.log", "stack.yaml"} <= marked


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


def test_a_long_log_loses_its_beginning_and_says_so(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    log = "".join(f"2026-11-25T16:00:00Z line {number} {'x' * 1000}\n" for number in range(3000))
    bundle(monkeypatch, cluster(logs={"a-0/slurmd": log}), "-o", str(archive))
    first, _, rest = files(archive)["logs/a-0/slurmd.log"].partition("\n")
    assert first.endswith("characters are left out]")
    assert log.endswith(rest)
    assert len(rest) == 2 * 1024 * 1024


# ---------------------------------------------------------------- secrets, in whatever form they stand there


def removed(text: str, *values: bytes) -> str:
    """The text without these values."""
    return redactor([secret("keys", **{f"k{number}": value for number, value in enumerate(values)})])(text)


def test_of_values_that_contain_each_other_none_stays() -> None:
    values = ["abcdefgh", "abcdefgh-and-more", "before-abcdefgh"]
    left = removed(" ".join(values), *(value.encode() for value in values))
    assert "abcdefgh" not in left


def test_what_is_secret_in_a_file_that_is_a_secret_goes_by_itself_too() -> None:
    """As in alertmanager.yml and sssd.conf, of which programs say no whole line."""
    whom = b'receivers: [{name: team, webhook_configs: [{url: "https://chat.example/hook/T1/abcdefgh"}]}]\n'
    directory = b"ldap_uri = ldaps://ldap.example\nldap_default_authtok = hunter2hunter2\n"
    said = "Post https://chat.example/hook/T1/abcdefgh: timeout; bind with hunter2hunter2 to ldaps://ldap.example"
    left = removed(said, whom, directory)
    assert left == (
        "Post <removed: secret keys/k0>: timeout; bind with <removed: secret keys/k1> to ldaps://ldap.example"
    )
    assert "hunter2" not in removed("ldap_default_authtok = hunter2")


@pytest.mark.parametrize("value", [b"1234567", b"", b"Password", b"slurm_acct_db"])
def test_short_values_and_common_words_stay(value: bytes) -> None:
    text = "slurmdbd: short 1234567 user Password slurm_acct_db"
    assert removed(text, value) == text


PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3NzaC1\n-----END OPENSSH PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3OTU2MDAwMDB9.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"found {PRIVATE} here", "b3BlbnNzaC1rZXk"),
        (json.dumps({"file": PRIVATE}), "AAAAB3NzaC1"),
        (PRIVATE.partition("-----END")[0], "AAAAB3NzaC1"),
        (f"SLURM_JWT={JWT}", "eyJleHAiOjE3OTU2MDAwMDB9"),
        ("Authorization: Bearer abcdefghijklmnop0123", "abcdefghijklmnop0123"),
        ("StoragePass=hunter2 user=slurm", "hunter2"),
        ('{"password": "two words\\" more", "user": "x"}', "two words"),
        ('{"last": "{\\"api_key\\": \\"hunter2 x\\"}"}', "hunter2 x"),
        ("mysql://slurm:hunter2@database/slurm", "hunter2"),
        ("program --token hunter2", "hunter2"),
    ],
)
def test_what_looks_like_a_secret_goes_though_nobody_knows_it(text: str, gone: str) -> None:
    left = Redactor()(text)
    assert gone not in left
    assert "<removed" in left
    if text.startswith("{"):
        json.loads(left)


@pytest.mark.parametrize(
    "text",
    [
        "AuthAltParameters=jwt_key=/run/slurmstack/keys/jwt_hs256.key",
        '{"secret": {"secretName": "munge-key"}, "automountServiceAccountToken": false}',
        "pull_secret: registry",
        "JobCompPass             = (null)",
        '{"passwd": "alice:x:10001:10001::/home/alice:/bin/bash\\n"}',
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert Redactor()(text) == text


def test_a_document_loses_what_its_own_keys_call_a_secret() -> None:
    document = {
        "encryptionsalt": "v1:abc",
        "config": {
            "aws:secretKey": {"secure": "AAABAPx"},
            "slurmstack:users": {"alice": {"uid": 1, "ssh_authorized_keys": ["ssh-ed25519 AAAA alice"]}},
            "slurmstack:images": {"registry": "r.example", "pull_secret": "registry"},
            "other:api-key": "hunter2",
            "list": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "HOME", "value": "/root"}],
        },
    }
    left = without_secrets(document)
    assert left["encryptionsalt"] == left["config"]["other:api-key"] == REMOVED
    assert left["config"]["aws:secretKey"] == {"secure": REMOVED}
    assert left["config"]["list"] == [{"name": "DB_PASSWORD", "value": REMOVED}, {"name": "HOME", "value": "/root"}]
    for kept in ("slurmstack:users", "slurmstack:images"):
        assert left["config"][kept] == document["config"][kept]  # type: ignore[index]
