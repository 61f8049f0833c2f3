"""What `slurmstack doctor`, `doctor job` and `doctor node` print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cli.commands import doctor
from cli.errors import USAGE, Failure
from tests.stacks import ROOT
from tests.unit.cli.doctor.cluster.recorded import RecordedCluster, recorded

Ill = Callable[[RecordedCluster], object]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> RecordedCluster:
    """The one that the command reaches."""
    made = recorded()
    monkeypatch.setattr("cli.access.reach.reach", lambda _, **_more: made)
    return made


def run(*arguments: str) -> int:
    """The exit status of the command."""
    try:
        code = typer.main.get_command(doctor.app)(list(arguments), standalone_mode=False)
    except Failure as failure:
        print(failure.message)
        return failure.code
    return int(code or 0)


def test_a_healthy_cluster_ends_with_0_and_says_what_was_looked_at(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    printed = capsys.readouterr().out
    assert all(line == line.rstrip() for line in printed.splitlines())
    said = " ".join(printed.split())
    assert said.startswith("Nothing is wrong, as far as could be seen.")
    assert "looked at: 12 pods, 2 machines, 3 volume claims, 2 Slurm nodes, 0 jobs, configuration, accounting" in said


def test_something_found_ends_with_1_in_80_columns_but_for_what_is_to_be_copied(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.node("default-1", "IDLE", "DRAIN", reason="bad disk " * 20, by="root")
    cluster.refused["Node"] = 'Error from server (Forbidden): nodes is forbidden: User "bob"'
    assert run() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1. warning: node default-1 is drained by root: bad disk")
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines if "mend:" not in line)
    assert "could not look at machines: not allowed" in lines


def test_text_from_outside_moves_no_cursor(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.node("default-1", "IDLE", "DRAIN", reason="\x1b[2Jbad\rdisk [red]", by="root")
    run()
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\r" not in said
    assert "disk [red]" in said


def test_json_has_the_findings_and_what_could_not_be_read(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.node("default-1", "IDLE", "DRAIN", reason="bad disk", by="root")
    assert run("--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["findings"][0]["about"] == "node default-1"
    assert data["unread"] == {}


def test_nothing_that_can_be_read_ends_with_3(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refused["exec"] = 'Error from server (Forbidden): pods "controller-0" is forbidden'
    for kind, name in {"Pod": "pods", "StatefulSet": "statefulsets.apps", "Deployment": "deployments.apps"}.items():
        cluster.refused[kind] = f"Error from server (Forbidden): {name} is forbidden"
    cluster.objects.clear()
    assert run() == 3
    assert "nothing can be read" in capsys.readouterr().out


def test_no_cluster_at_all_ends_with_3(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.objects.clear()
    cluster.refused["exec"] = 'Error from server (NotFound): pods "controller-0" not found'
    assert run() == 3
    assert "nothing of a cluster is in namespace slurm" in capsys.readouterr().out


def test_a_job_that_waits_is_explained_with_its_own_number(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.job("12", "Priority")
    cluster.job("13_[1-5%1]", "JobHeldUser")
    assert run("job", "12") == 1
    assert "job 12 of alice waits: jobs of higher priority are before it" in capsys.readouterr().out
    assert run("job", "13_2") == 1
    assert "scontrol release 13\n" in capsys.readouterr().out


def test_a_job_waits_for_the_nodes_that_are_drained(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("default-0", "default-1"):
        cluster.node(name, "IDLE", "DRAIN", reason="new disks", by="root")
    cluster.job("12", "Resources")
    assert run("job", "12") == 1
    assert capsys.readouterr().out.startswith("1. warning: node default-0 is drained by root: new disks")


def test_a_job_that_runs_is_no_fault(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.job("12", "None", state="RUNNING", nodes="default-0")
    assert run("job", "12") == 0
    assert "is running on default-0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("past", "words", "code"),
    [
        ("COMPLETED|0:0|default-0|a|b|None", "ended well", 0),
        ("OUT_OF_MEMORY|0:125|default-0|a|b|None", "more memory than it had asked for", 1),
        ("CANCELLED by 0|0:0|None assigned|None|b|None", "exit status 0:0; on no node", 1),
    ],
)
def test_a_job_that_has_ended_is_known_from_accounting(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str], past: str, words: str, code: int
) -> None:
    cluster.slurm["past"] = (0, past)
    assert run("job", "12") == code
    assert words in capsys.readouterr().out


def test_a_job_that_runs_has_not_ended_though_the_queue_could_not_be_read(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.slurm.update(queue=(124, ""), past=(0, "RUNNING|0:0|default-0|a|b|None"))
    assert run("job", "12") == 0
    said = capsys.readouterr().out
    assert "job 12 is running" in said
    assert "could not be read" in said
    assert "exit status" not in said


@pytest.mark.parametrize("arguments", [("job", "12"), ("job", "nonsense"), ("job", "1;id"), ("node", "gpu-0")])
def test_what_nobody_knows_is_wrong_usage(cluster: RecordedCluster, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == USAGE


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("past", (1, ""), "not asked: accounting (no answer)"),  # slurmdbd is away
        ("past", (124, ""), "not asked: accounting (no answer)"),
        ("job", (124, ""), "not asked: jobs (no answer)"),
        ("queue", (124, ""), "not asked: jobs (no answer)"),
    ],
)
def test_a_job_that_nobody_could_be_asked_about_is_not_called_unknown(
    cluster: RecordedCluster,
    capsys: pytest.CaptureFixture[str],
    question: str,
    answer: tuple[int, str],
    words: str,
) -> None:
    cluster.slurm[question] = answer
    assert run("job", "12") == 3
    said = capsys.readouterr().out
    assert words in said
    assert "neither" not in said


def test_a_job_cannot_be_explained_without_slurmctld(cluster: RecordedCluster) -> None:
    cluster.slurm["slurmctld"] = (124, "")
    assert run("job", "12") == 3


def test_a_node_is_asked_about_alone(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.node("default-1", "IDLE", "DRAIN", reason="bad disk", by="root")
    assert run("node", "default-0") == 0
    assert "Nothing is wrong with default-0 (idle)" in capsys.readouterr().out
    assert run("node", "default-1") == 1


def test_a_node_suffers_from_its_machine(cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    conditions = cluster.thing("Node", "node-0")["status"]["conditions"]
    next(one for one in conditions if one["type"] == "Ready")["status"] = "Unknown"
    assert run("node", "default-1") == 1
    assert capsys.readouterr().out.startswith("1. error: the Kubernetes machine node-0 is not ready")
    assert run("node", "default-0") == 0


def test_a_node_that_slurm_lacks_is_told_also_where_no_pod_may_be_looked_at(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused["Pod"] = 'Error from server (Forbidden): pods is forbidden: User "bob"'
    nodes = cluster.slurm["nodes"][1]["nodes"]
    nodes.remove(next(one for one in nodes if one["name"] == "default-1"))
    assert run("node", "default-1") == 1
    assert "Slurm has no node default-1, which the stack file wants" in " ".join(capsys.readouterr().out.split())
    assert run("node", "default-0") == 0


def test_commands_to_be_copied_are_said_to_be_for_this_cluster(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another one may have the same namespace and nodes, and be what kubectl and slurmstack lead to by themselves."""
    stack = tmp_path / "Pulumi.prod.yaml"
    stack.write_bytes((ROOT / "Pulumi.dev.yaml").read_bytes())
    assert run("--config", str(stack)) == 0
    assert "here:" not in capsys.readouterr().out
    cluster.node("default-1", "IDLE", "DRAIN", reason="bad disk", by="root")
    cluster.job("12", "DependencyNeverSatisfied")
    cluster.thing("StatefulSet", "default")["spec"]["replicas"] = 5
    assert run("--config", str(stack)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "kubectl here: kubectl --context test" in lines
    assert f"slurmstack here: slurmstack ... --config {stack}" in lines
    assert run() == 1
    assert "slurmstack here" not in capsys.readouterr().out


def test_a_slow_api_server_is_not_asked_whether_it_is_there_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 2.9 s an answer took 6.3 s; the help says 5."""
    made, asked = recorded(), []

    def connect(_: object, **more: object) -> RecordedCluster:
        asked.append(more.get("ask", True))
        return made

    monkeypatch.setattr("cli.access.reach.connect", connect)
    assert run() == 0
    assert asked == [False]
    made.objects.clear()
    made.refused["exec"] = "nothing"
    assert run() == 3
    assert asked == [False, False, True]


def test_what_is_the_same_of_many_nodes_is_said_once_and_scripts_have_all(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster.slurm["nodes"][1]["nodes"]
    nodes += [{**nodes[0], "name": f"default-{number}"} for number in range(2, 1000)]
    for number in range(2, 1000):
        cluster.node(f"default-{number}", "DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm")
    cluster.node("default-1", "DOWN", reason="a fan", by="root")
    assert run() == 1
    said = capsys.readouterr().out
    assert len(said.splitlines()) < 30
    assert "the same: 997 more, default-3, default-4" in " ".join(said.split())
    assert "a fan" in said
    assert run("--json") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert sum(one["about"].startswith("node default-") for one in found) == 999
