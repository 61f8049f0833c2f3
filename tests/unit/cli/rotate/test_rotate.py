"""Rotation of keys: what is written where, who starts again, and what becomes of one that was cut short."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.change.owner import ROTATING
from cli.commands import rotate as command
from cli.errors import Failure, Refused
from cli.program.recording import KeptValues, record
from cli.rotate import rotation
from cli.rotate.keys import KEYS
from cli.rotate.rotation import Rotation
from components.secrets import LOGIN_PUBLIC_KEY_FILE, PUBLIC_KEY_FILE, WORKER_HOST_KEY
from config import load_config
from local.report import open_report
from slurm.certificates import ed25519_private_key_pem, ed25519_public_key
from slurm.names import GENERATED
from tests import stacks
from tests.fakes.kubectl import FakeCluster, thing
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file

DIGEST = re.compile(r'sha256sum <(\S+)\)" = "(\w+)  -"')


@dataclass(frozen=True, kw_only=True)
class Cluster(FakeCluster):
    """Has Secrets that can be changed, and pods with the files of one of them."""

    said: list[tuple[str, ...]] = field(default_factory=list)
    """All command lines."""
    given: list[str] = field(default_factory=list)
    """What was given to commands in containers."""
    silent: set[str] = field(default_factory=set)
    """Pods in which no command runs."""
    copies: dict[str, str] = field(default_factory=dict)
    """Pod -> SHA-256 of the key that it has read at its start."""
    restarted: list[str] = field(default_factory=list)
    """Pods whose first process is root's: others may not end it."""

    def named(self, kind: str, name: str) -> dict[str, Any]:
        there = {(item["kind"].lower(), item["metadata"]["name"]): item for item in self.items_there}
        return there[kind, name]

    def secret(self, name: str) -> dict[str, Any]:
        return self.named("secret", name)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **more: float
    ) -> subprocess.CompletedProcess[str]:
        self.said.append(arguments)
        if arguments[0] == "exec":
            code = self._exec(arguments, stdin)
            told = ("", "no answer") if code else ("1700000000", "")
            return subprocess.CompletedProcess(arguments, code, *told)
        if arguments[0] == "replace":
            new = json.loads(stdin or "")
            old = self.secret(new["metadata"]["name"])
            assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
            old.clear()
            old.update(new)
        if arguments[0] == "patch":
            self.named(arguments[1], arguments[2])["data"].update(json.loads(stdin or "")["data"])
        if arguments[:2] == ("delete", "pod"):
            self.restarted.append(arguments[2])
            (item,) = [item for item in self.items_there if item["metadata"]["name"] == arguments[2]]
            item["status"] = pod("a new one", "slurmdbd")["status"]
        if arguments[:3] == ("get", "--ignore-not-found", "secret"):
            found = [item for item in self.items_there if item["metadata"]["name"] == arguments[3]]
            return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": found}), "")
        return super().run(*arguments, stdin=stdin, check=check, **more)

    def _exec(self, arguments: tuple[str, ...], stdin: str | None) -> int:
        pod = arguments[arguments.index("-c") - 1]
        if stdin:
            self.given.append(stdin)
        if pod in self.silent:
            return 1
        if asked := DIGEST.search(arguments[-1]):
            path, digest = asked.groups()
            return 0 if path.startswith("/secrets/") or self.copies.get(pod) == digest else 1
        if "kill -TERM $(cat" in arguments[-1]:
            self.restarted.append(pod)
            (item,) = [item for item in self.items_there if item["metadata"]["name"] == pod]
            for status in item["status"]["initContainerStatuses"]:
                status["containerID"] += "'"
            self.copies[pod] = self.digest()
        return 0

    def digest(self) -> str:
        import hashlib  # noqa: PLC0415

        return hashlib.sha256(base64.b64decode(self.secret("munge-key")["data"]["munge.key"])).hexdigest()


def pod(name: str, container: str, *, phase: str = "Running") -> dict[str, Any]:
    status = {"name": container, "containerID": name, "ready": True, "state": {"running": {}}}
    return thing(
        "Pod",
        name,
        spec={"containers": [{"name": container}]},
        status={"phase": phase, "initContainerStatuses": [status] if phase == "Running" else []},
    )


def secret(name: str, **data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": "slurm", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(rotation, "POLL", 0)
    values = KeptValues({})
    record(stacks.dev(), stack="test", generated=values)
    generated = secret(GENERATED, **values.values)
    others = [secret(key.secret, **{key.path.rpartition("/")[2]: "old"}) for key in KEYS.values()]
    nodes = [pod(name, "munged") for name in ("controller-0", "default-0", "login-0")]
    public = thing("ConfigMap", WORKER_HOST_KEY, data={"ssh_host_ed25519_key.pub": "old"})
    return Cluster(items_there=[generated, *others, public, *nodes])


def run(kubectl: Cluster, key: str, sections: dict[str, Any] | None = None) -> str:
    config = load_config(sections or stacks.dev())
    return command.carry_out(config, Rotation(kubectl, "slurm", KEYS[key]), open_report())


@pytest.mark.parametrize("key", KEYS)
def test_no_key_is_in_an_argument_or_annotation(kubectl: Cluster, key: str) -> None:
    container = KEYS[key].containers[0]
    kubectl.items_there.append(pod("other-0", container))
    run(kubectl, key)
    value = base64.b64decode(kubectl.secret(GENERATED)["data"][f"slurm-secrets-{KEYS[key].value}"]).decode()
    content = KEYS[key].content(value)
    lines = [line for line in content.decode(errors="ignore").splitlines() if len(line) > 30]
    told = json.dumps([list(words) for words in kubectl.said])
    annotations = json.dumps([item["metadata"] for item in kubectl.items_there])
    for text in (value, base64.b64encode(content).decode(), content.hex(), *(x for x in lines if x.isprintable())):
        if "-----" not in text:
            assert text not in told
            assert text not in annotations
    assert ROTATING not in annotations, "it has ended"


def test_a_rotation_of_the_database_s_password_goes_on_while_slurmdbd_may_not_log_in(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started anew by somebody else, with the new password and the old one in the database: it ends at once."""
    monkeypatch.setattr(rotation, "RESTART_SECONDS", 1)
    slurmdbd = pod("slurmdbd-0", "slurmdbd")
    kubectl.items_there.extend([pod("database-0", "mariadbd"), slurmdbd])
    slurmdbd["status"]["initContainerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    with pytest.raises(Failure, match="do not run, or do not answer: slurmdbd-0"):
        run(kubectl, "database-password")
    Rotation(kubectl, "slurm", KEYS["database-password"]).begin()
    run(kubectl, "database-password")
    assert len(kubectl.given) == 2, "the database has been told"
    assert kubectl.restarted == ["slurmdbd-0"], "at once, and not when kubelet has waited"


def test_a_worker_that_leaves_meanwhile_keeps_no_other_from_the_new_host_key(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of an elastic pool may go at any time. Who runs the command again tells all once more."""
    kubectl.items_there.extend(pod(f"default-{number}", "worker-sshd") for number in (1, 2))
    spread = Rotation.spread

    def then_leaves(begun: Rotation, step: Any) -> None:
        spread(begun, step)
        kubectl.silent.add("default-1")

    monkeypatch.setattr(Rotation, "spread", then_leaves)
    with pytest.raises(Failure, match="default-1: no answer") as caught:
        run(kubectl, WORKER_HOST_KEY)
    assert "run this again" in caught.value.hint
    assert [words[words.index("-c") - 1] for words in kubectl.said if "kill -HUP 1" in words[-1]].count(
        "default-2"
    ) == 1


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("does not answer", "do not run, or do not answer"),
        ("does not run", "do not run, or do not answer"),
        ("leaves", "are leaving, and get no new key"),
    ],
)
def test_a_pod_that_would_be_left_behind_is_refused_before_anything_is_touched(
    kubectl: Cluster, how: str, told: str
) -> None:
    (worker,) = [item for item in kubectl.items_there if item["metadata"]["name"] == "default-0"]
    if how == "does not answer":
        kubectl.silent.add("default-0")
    elif how == "leaves":
        worker["metadata"]["deletionTimestamp"] = "2026-11-30T14:00:00Z"
    else:
        worker["status"]["initContainerStatuses"][0]["state"] = {"terminated": {"exitCode": 1}}
    before = json.dumps(kubectl.items_there)
    with pytest.raises(Failure, match=f"these pods {told}: default-0"):
        run(kubectl, "munge")
    assert json.dumps(kubectl.items_there) == before


def test_a_pod_that_only_waits_for_a_machine_is_in_nobody_s_way(kubectl: Cluster) -> None:
    kubectl.items_there.append(pod("default-1", "munged", phase="Pending"))
    run(kubectl, "munge")
    assert "default-1" not in kubectl.restarted


@pytest.mark.parametrize(
    ("key", "secret", "container", "file"),
    [
        (WORKER_HOST_KEY, WORKER_HOST_KEY, "worker-sshd", PUBLIC_KEY_FILE),
        ("host-keys", "ssh-host-keys", "sshd", LOGIN_PUBLIC_KEY_FILE),
    ],
)
def test_a_key_of_hosts_is_rotated_with_what_the_cluster_knows_it_by(
    kubectl: Cluster, key: str, secret: str, container: str, file: str
) -> None:
    kubectl.items_there.append(pod("default-2", container))
    said = run(kubectl, key)
    seed = f"slurm-secrets-{key.removesuffix('-keys').removesuffix('-key')}-seed"
    value = base64.b64decode(kubectl.secret(GENERATED)["data"][seed]).decode()
    private = base64.b64decode(kubectl.secret(secret)["data"]["ssh_host_ed25519_key"]).decode()
    assert private == ed25519_private_key_pem(value)
    public = kubectl.named("configmap", WORKER_HOST_KEY)["data"][file]
    assert public == ed25519_public_key(value)
    assert public in said
    commands = [words for words in kubectl.said if "kill -HUP 1" in words[-1]]
    assert [words[words.index("-c") - 1] for words in commands] == ["default-2"]


def test_keys_that_are_not_in_the_cluster_are_refused(kubectl: Cluster) -> None:
    del kubectl.secret(GENERATED)["data"]["slurm-secrets-munge"]
    with pytest.raises(Failure, match="there is no generated munge"):
        run(kubectl, "munge")
    password = {"name": "db", "key": "password"}
    external = with_change(stacks.dev(), "accounting.database", {"external": {"host": "db", "password": password}})
    with pytest.raises(Failure, match="no database of its own"):
        run(kubectl, "database-password", external)


def test_the_command_asks_and_refuses_a_cluster_of_pulumi_s_engine(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    namespace = thing("Namespace", "slurm")
    kubectl.items_there.append(namespace)
    monkeypatch.setattr(command, "reach", lambda _: kubectl)
    file = stack_file(tmp_path, stacks.dev())
    with pytest.raises(Refused, match="for some seconds pods do not understand each other"):
        command.rotate("munge", file)
    namespace["metadata"]["managedFields"] = [{"manager": "pulumi-kubernetes-1"}]
    with pytest.raises(Failure, match="was made by `pulumi up`") as caught:
        command.rotate("munge", file, yes=True)
    assert 'docs/rotate-keys.md, "With Pulumi, or render"' in caught.value.hint
    assert "\n## With Pulumi, or render\n" in (stacks.ROOT / "docs/rotate-keys.md").read_text(encoding="utf-8")
