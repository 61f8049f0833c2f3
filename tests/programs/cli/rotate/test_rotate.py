"""Rotation of keys: what is written where, who starts again, and what becomes of one that was cut short."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.program.generated import KeptValues
from cli.program.recording import record
from cli.rotate import pods as pods_module
from cli.rotate.keys import KEYS
from cli.rotate.pods import Places
from slurm.names import ACTIVE, GENERATED
from tests import stacks
from tests.fakes.kubectl import OURS, FakeCluster, thing

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
    of_root: set[str] = field(default_factory=set)
    """Pods whose first process is root's: others may not end it."""

    def secret(self, name: str) -> dict[str, Any]:
        (found,) = [item for item in self.items_there if (item["kind"], item["metadata"]["name"]) == ("Secret", name)]
        return found

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **more: float
    ) -> subprocess.CompletedProcess[str]:
        self.said.append(arguments)
        if arguments[0] == "exec":
            return subprocess.CompletedProcess(arguments, self._exec(arguments, stdin), "1700000000", "")
        if arguments[0] == "replace":
            new = json.loads(stdin or "")
            old = self.secret(new["metadata"]["name"])
            assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
            old.clear()
            old.update(new)
        if arguments[:2] == ("patch", "secret"):
            self.secret(arguments[2])["data"].update(json.loads(stdin or "")["data"])
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
        if "kill -TERM $(cat" in arguments[-1] and not (pod in self.of_root and "--reuid=root" not in arguments[-1]):
            self.restarted.append(pod)
            (item,) = [item for item in self.items_there if item["metadata"]["name"] == pod]
            for status in item["status"]["initContainerStatuses"]:
                status["containerID"] += "'"
            if ACTIVE in item["metadata"]["labels"]:  # the other one takes over
                (other,) = [it for it in self.items_there if it["metadata"]["name"] in self.of_root - {pod}]
                item["metadata"]["labels"], other["metadata"]["labels"] = OURS, item["metadata"]["labels"]
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
    monkeypatch.setattr(pods_module, "POLL", 0)
    values = KeptValues({})
    record(stacks.dev(), stack="test", generated=values)
    generated = secret(GENERATED, **values.values)
    others = [secret(key.secret, **{key.file: "old"}) for key in KEYS.values()]
    nodes = [pod(name, "munged") for name in ("controller-0", "default-0", "login-0")]
    return Cluster(items_there=[generated, *others, *nodes])


def test_a_container_ends_its_first_process_at_the_moment_that_it_was_told(
    kubectl: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a real shell; the command that told it has ended long before."""
    (tmp_path / "setpriv").write_text(
        f'#!/bin/sh\necho "$(date +%s) $*" >{tmp_path}/ended.new\nmv {tmp_path}/ended.new {tmp_path}/ended\n'
    )
    (tmp_path / "setpriv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    places = Places(kubectl, "slurm", ("munged",))
    at = int(time.time()) + 2
    places._end(places.running()[0], user="munge", at=at)
    said = kubectl.said[-1]
    subprocess.run(said[said.index("--") + 1 :], check=True, timeout=1)
    assert not (tmp_path / "ended").exists()
    while not (tmp_path / "ended").exists():
        assert time.time() < at + 10
        time.sleep(0.05)
    moment, what = (tmp_path / "ended").read_text(encoding="utf-8").split(maxsplit=1)
    assert int(moment) - at in {0, 1}
    assert what == "--reuid=munge --regid=munge --clear-groups sh -c kill -TERM $(cat /proc/1/task/1/children)\n"
