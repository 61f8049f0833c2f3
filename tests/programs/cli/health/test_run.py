"""`slurmstack health run` and `list`: checks by hand, and the command line as its user meets it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from images.health.contract import Check, Context, Node, Status, Thresholds
from images.health.contract import Result as Found
from images.health.local import Local
from images.health.nodes import document
from images.health.registry import Registry
from images.health.run import ByHand
from tests import stacks
from tests.fakes.health_cluster import NOW, FakeCluster, answer, health, node, pod
from tests.stacks import ROOT


def by_hand(directory: Path, result: Found, *words: str) -> tuple[str, int]:
    """What the worker's own program prints where its only check finds this, and its exit code."""
    said: list[str] = []
    (directory / "proc").mkdir()
    contexts: frozenset[Context] = frozenset({"periodic"})
    check = Check(name="disks", summary="room", contexts=contexts, run=lambda *_: result, seconds=20)
    program = ByHand(
        local=Local(node=Node(name="w-0", root=directory, state=directory / "state"), thresholds=Thresholds()),
        registry=Registry(checks={"disks": check}),
        say=said.append,
        complain=said.append,
    )
    code = program.run(words)
    return "\n".join(said) + "\n", code


def on_worker(stdout: str = "", stderr: str = "", code: int = 0) -> FakeCluster:
    stderr += f"command terminated with exit code {code}\n" if code else ""
    return FakeCluster(pods=[pod("w-0"), pod("w-1")], worker=answer(stdout, stderr, code))


@pytest.mark.parametrize("status", list(Status))
def test_the_worker_s_own_program_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: Status
) -> None:
    result = Found(status=status, message="as it is", values={"disk_used_ratio": 0.5})
    printed, code = by_hand(tmp_path, result, "run", "disks", "--json")
    shown = health(monkeypatch, on_worker(printed, code=code), "run", "disks", "--node", "w-0")
    assert shown.stdout == f"{status.value} disks: as it is\n  disk_used_ratio 0.5\n"
    assert shown.exit_code == code


def command(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a kubectl that plays a cluster of one failing node."""
    text = "fail: " + "x" * 150
    failing = node("w-0", results={"disks": Found(status=Status.FAIL, message=text)})
    (tmp_path / "nodes.json").write_text(json.dumps(document([failing], NOW)), encoding="utf-8")
    (tmp_path / "pods.json").write_text(json.dumps({"items": [pod("w-0")]}), encoding="utf-8")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"""#!/bin/sh
case "$*" in
  *readyz*) ;;
  *health-nodes*) cat {tmp_path}/nodes.json ;;
  *"get --ignore-not-found pod"*) cat {tmp_path}/pods.json ;;
  *) echo "error: connection lost" >&2; exit 1 ;;
esac
""",
        encoding="utf-8",
    )
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    sections = {**stacks.existing(), "cloud": {"kind": "existing", "context": "there"}}
    stack = tmp_path / "Pulumi.test.yaml"
    stack.write_text(
        yaml.safe_dump({"config": {f"slurmstack:{key}": value for key, value in sections.items()}}), encoding="utf-8"
    )
    return subprocess.run(
        [sys.executable, "-m", "cli.entry", "health", *arguments, "--config", str(stack)],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_in_a_pipe_a_finding_stays_on_one_line_without_colours(tmp_path: Path) -> None:
    done = command(tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert any("w-0" in line and "x" * 150 in line for line in done.stdout.splitlines())


def test_the_process_ends_with_3_when_a_check_could_not_be_run(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "disks", "--node", "w-0")
    assert done.returncode == 3
    assert "disks could not be run on node w-0: error: connection lost" in done.stderr
    assert "Traceback" not in done.stderr
