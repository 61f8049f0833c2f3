"""`slurmstack health run` and `test`: checks by hand, and the command line as its user meets it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes.health_cluster import FakeCluster, Unreachable, answer, failure_of, health
from tests.stacks import dev, with_change
from tests.unit.cli.command_line import stack_file


def on_worker(stdout: str = "", stderr: str = "", code: int = 0) -> FakeCluster:
    stderr += f"command terminated with exit code {code}\n" if code else ""
    return FakeCluster(worker=answer(stdout, stderr, code))


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_the_node_s_own_program_finds_is_printed_and_its_exit_status_told(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cluster = on_worker("fail disks [node]: \x1b[2J97 % used\n  disk_used_ratio 0.97\n", code=code)
    result = health(monkeypatch, cluster, "run", "disks", "--node", "w-1")
    assert cluster.commands == ["w-1 run disks"]
    assert result.stdout == "fail disks [node]:  [2J97 % used\n  disk_used_ratio 0.97\n"
    assert result.exit_code == code
    health(monkeypatch, cluster, "run", "disks", "--node", "w-1", "--json")
    assert cluster.commands[-1] == "w-1 run disks --json"


def test_an_unknown_check_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = on_worker(stderr="there is no check 'disk'; there are disks, dns\n", code=2)
    failure = failure_of(health(monkeypatch, cluster, "run", "disk", "--node", "w-0"))
    assert (failure.message, failure.code) == ("node w-0: there is no check 'disk'; there are disks, dns", 2)


def test_a_node_that_is_not_there_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = on_worker(stderr='Error from server (NotFound): pods "v-9" not found', code=1)
    failure = failure_of(health(monkeypatch, cluster, "run", "disks", "--node", "v-9"))
    assert ("there is no node v-9" in failure.message, failure.code) == (True, 2)


@pytest.mark.parametrize(
    "cluster",
    [
        on_worker(stderr="error: unable to upgrade connection: container not found", code=1),
        on_worker("ok disks\n", code=137),
        Unreachable(),
    ],
    ids=["kubectl failed", "killed", "cluster does not answer"],
)
def test_a_check_that_could_not_be_run_has_not_failed(monkeypatch: pytest.MonkeyPatch, cluster: object) -> None:
    result = health(monkeypatch, cluster, "run", "disks", "--node", "w-0")
    assert failure_of(result).code == 3
    assert result.stdout == ""


@pytest.mark.parametrize("code", [0, 1])
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
