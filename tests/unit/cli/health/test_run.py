"""`slurmstack health run` and `list`: checks by hand, and the command line as its user meets it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from images.common.health.contract import Node, Status, Thresholds
from images.common.health.contract import Result as Found
from images.health.checks import disks
from images.health.local import Local
from images.health.run import by_hand
from images.health.runner import Outcome
from tests.fakes.health_cluster import FakeCluster, Unreachable, answer, failure_of, health, node, pod
from tests.stacks import dev, with_change
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


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_node_is_measured_by_the_tests_of_nodes_and_their_exit_status_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    started: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return answer(code=code)

    monkeypatch.setattr("cli.health.query.subprocess.run", run)
    on = str(stack_file(tmp_path, with_change(dev(), "health", {"tests": {"enabled": True}})))
    assert health(monkeypatch, FakeCluster(), "test", "w-0", "--config", on).exit_code == code
    program = ["-c", "health-tests", "--", "/usr/libexec/slurmstack/health-tests", "--node", "w-0"]
    assert started[0][-len(program) - 4 :] == ["exec", "-n", "slurm", "deployment/health-watch", *program]


def test_a_stack_without_tests_of_nodes_measures_none(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of(health(monkeypatch, Unreachable(), "test", "w-0"))
    assert (failure.message, failure.code) == ("tests of nodes are off in this stack", 2)


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


@pytest.mark.parametrize("status", list(Status))
def test_the_worker_s_own_program_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Status
) -> None:
    result = Found(status=status, message="as it is", values={"disk_used_ratio": 0.5})
    monkeypatch.setattr("images.health.run.run_checks", lambda *_: {"disks": Outcome(result=result)})
    (tmp_path / "proc").mkdir()
    local = Local(node=Node(name="w-0", root=tmp_path, state=tmp_path / "state"), thresholds=Thresholds())
    code = by_hand(("run", "disks", "--json"), local, {"disks": disks.CHECK})
    shown = health(monkeypatch, on_worker(capsys.readouterr().out, code=code), "run", "disks", "--node", "w-0")
    assert shown.stdout == f"{status.value} disks: as it is\n  disk_used_ratio 0.5\n"
    assert shown.exit_code == code


def test_in_a_pipe_a_finding_stays_on_one_line_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    failing = node("w-0", results={"disks": Found(status=Status.FAIL, message="x" * 150)})
    done = health(monkeypatch, FakeCluster(nodes=[failing], pods=[pod("w-0")]))
    assert (done.exit_code, done.stderr) == (1, "")
    assert "\x1b" not in done.stdout
    assert any("w-0" in line and "x" * 150 in line for line in done.stdout.splitlines())
