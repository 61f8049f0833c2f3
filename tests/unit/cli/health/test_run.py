"""`slurmstack health run` and `list`: checks by hand, and the command line as its user meets it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from images.health.contract import Result as Found
from images.health.contract import Status
from images.health.nodes import document
from tests import stacks
from tests.fakes.health_cluster import NOW, FakeCluster, Unreachable, answer, failure_of, health, node, pod
from tests.stacks import ROOT
from tests.unit.cli.command_line import stack_file


def found(status: str = "ok", message: str = "", fault: str | None = None, **values: float) -> str:
    """What the worker's own program prints."""
    text = {"node": "w-0", "check": "disks", "status": status, "fault": fault, "message": message}
    return json.dumps({**text, "values": values, "seconds": 0.01}) + "\n"


def on_worker(stdout: str = "", stderr: str = "", code: int = 0) -> FakeCluster:
    stderr += f"command terminated with exit code {code}\n" if code else ""
    return FakeCluster(pods=[pod("w-0"), pod("w-1")], worker=answer(stdout, stderr, code))


def test_a_check_runs_on_its_node_and_prints_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = on_worker(found("fail", "/jail:\n97 % used", "node", disk_used_ratio=0.97), code=1)
    result = health(monkeypatch, cluster, "run", "disks", "--node", "w-1")
    assert cluster.commands == ["w-1 run disks --json"]
    assert result.stdout == "fail disks [node]: /jail: 97 % used\n  disk_used_ratio 0.97\n"
    assert result.exit_code == 1


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warn", 0), ("fail", 1), ("not checked", 3)])
def test_the_exit_status_of_a_check_is_that_of_the_program(
    monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    result = health(monkeypatch, on_worker(found(status), code=code), "run", "disks", "--node", "w-0", "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["status"] == status


def test_an_unknown_check_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = on_worker(stderr="there is no check 'disk'; `health list` shows all\n", code=2)
    failure = failure_of(health(monkeypatch, cluster, "run", "disk", "--node", "w-0"))
    assert failure.message == "node w-0: there is no check 'disk'"
    assert failure.hint == "`slurmstack health list --node w-0` shows all"
    assert failure.code == 2


@pytest.mark.parametrize("command", [["run", "disks"], ["list"]], ids=["run", "list"])
def test_a_node_without_a_pod_names_those_that_there_are(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    cluster = FakeCluster(pods=[pod("w-10"), pod("w-9")])
    failure = failure_of(health(monkeypatch, cluster, *command, "--node", "v-9"))
    assert failure.message == "there is no node 'v-9'; there are: w-9, w-10"
    assert failure.code == 2
    assert cluster.commands == []


@pytest.mark.parametrize(
    "cluster",
    [
        on_worker(stderr="error: unable to upgrade connection: container not found", code=1),
        on_worker(found("ok")[:30], code=1),
        on_worker("[]", code=0),
        on_worker(found("ok"), code=137),
        FakeCluster(pods=[pod("w-0", "Pending")]),
        Unreachable(),
    ],
    ids=["kubectl failed", "cut off", "something else", "killed", "pod does not run", "cluster does not answer"],
)
def test_a_check_that_could_not_be_run_has_not_failed(monkeypatch: pytest.MonkeyPatch, cluster: object) -> None:
    result = health(monkeypatch, cluster, "run", "disks", "--node", "w-0")
    assert failure_of(result).code == 3
    assert result.stdout == ""


def test_a_worker_of_an_older_image_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = 'exec: "/usr/libexec/slurmstack/health": stat /usr/libexec/slurmstack/health: no such file or directory'
    for words in (["run", "disks"], ["list"]):
        failure = failure_of(health(monkeypatch, on_worker(stderr=complaint, code=127), *words, "--node", "w-0"))
        assert "`slurmstack up`" in failure.hint


def test_a_pod_that_is_leaving_can_still_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(pods=[pod("w-0", leaving=True)], worker=answer(found("ok")))
    result = health(monkeypatch, cluster, "run", "disks", "--node", "w-0")
    assert (result.stdout, result.exit_code) == ("ok disks\n", 0)


LISTED = "disks  periodic    room on the jail\nxid    never: no gpu  Xid errors\n"


def test_the_checks_of_a_node_are_listed_as_it_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = on_worker(LISTED)
    result = health(monkeypatch, cluster, "list", "--node", "w-1")
    assert cluster.commands == ["w-1 list"]
    assert (result.stdout, result.stderr, result.exit_code) == (LISTED, "", 0)


def test_without_a_node_one_that_runs_is_asked_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod("w-0", "Pending"), pod("w-1", leaving=True), pod("w-2", ready=False), pod("w-10"), pod("w-11")]
    cluster = FakeCluster(pods=pods, worker=answer(LISTED))
    result = health(monkeypatch, cluster, "list")
    assert cluster.commands == ["w-10 list"]
    assert result.stdout == LISTED
    assert "w-10" in result.stderr


def test_without_any_worker_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of(health(monkeypatch, FakeCluster(pods=[pod("w-0", "Pending")]), "list"))
    assert failure.message == "no worker runs that could be asked"
    assert failure.code == 1


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    "words",
    [["--help"], ["nodes", "--help"], ["--json", "--help"], ["run", "--help"], ["list", "--help"]],
    ids=["health", "nodes", "options first", "run", "list"],
)
def test_the_help_teaches_by_examples(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    result = health(monkeypatch, Unreachable(), *words)
    assert result.exit_code == 0
    assert "slurmstack health" in Text.from_ansi(result.stdout).plain
    assert "Examples:" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nodes", "--help"], ["every half an hour, or every 5 minutes while", "older than 67 minutes, or 11, is old"]),
        (["run", "--help"], ["the watcher alone does that", "2 wrong usage, an unknown check or node, 3 not checked"]),
    ],
    ids=["nodes", "run"],
)
def test_the_help_says_what_the_documentation_says(
    monkeypatch: pytest.MonkeyPatch, words: list[str], told: list[str]
) -> None:
    text = " ".join(Text.from_ansi(health(monkeypatch, Unreachable(), *words).stdout).plain.split())
    assert [part for part in told if part not in text] == []


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
    stack = stack_file(tmp_path, sections)
    return subprocess.run(
        [sys.executable, "-m", "cli.entry", "health", *arguments, "--config", str(stack)],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
