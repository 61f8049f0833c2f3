"""What `slurmstack doctor`, `doctor job` print, how they end, and what they do without an answer."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest
import typer

from cli.commands import doctor
from cli.doctor.cluster.rules import diagnose
from cli.errors import USAGE, Failure
from cli.kubectl.client import LOG_IN
from tests.stacks import ROOT
from tests.unit.cli.doctor.cluster.recorded_cluster import CLOCK, NOW, RecordedCluster, recorded
from tests.unit.cli.doctor.cluster.situations import (
    Ill,
    agent,
    ago,
    both,
    drained,
    namespace_goes,
    nothing,
    queued,
    slurm_says,
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> RecordedCluster:
    """The one that the command reaches."""
    made = recorded()
    monkeypatch.setattr(doctor, "reach", lambda _, **_more: made)
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
    said = " ".join(printed.split())
    assert said.startswith("Nothing is wrong, as far as could be seen.")
    assert "looked at: 12 pods, 2 machines, 3 volume claims, 2 Slurm nodes, 0 jobs, configuration, accounting" in said


def test_something_found_ends_with_1_and_no_text_from_outside_moves_the_cursor(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.node("default-1", "IDLE", "DRAIN", reason="\x1b[2Jbad\rdisk [red] " * 20, by="root")
    cluster.refused["Node"] = 'Error from server (Forbidden): nodes is forbidden: User "bob"'
    assert run() == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said
    lines = said.splitlines()
    assert lines[0].startswith("1. warning: node default-1 is drained by root: [2Jbad disk [red]")
    assert "could not look at machines: not allowed" in lines


def starting(cluster: RecordedCluster) -> None:
    """The pod was made a moment ago."""
    pod = cluster.thing("Pod", "controller-0")
    pod["metadata"]["creationTimestamp"] = NOW
    pod["status"]["phase"] = "Pending"
    for one in pod["status"]["containerStatuses"] + pod["status"]["initContainerStatuses"]:
        one |= {"ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    for one in pod["status"]["conditions"]:
        one["lastTransitionTime"] = NOW
    cluster.refused["exec"] = 'error: container not found ("slurmctld")'


FORBIDDEN = 'Error from server (Forbidden): {0} is forbidden: User "bob" cannot list resource "{0}"'
BAD = drained("bad disk", by="root")

ANSWERS: dict[str, tuple[Ill, list[tuple[str, int, str]]]] = {
    "nothing is there": (nothing, [("", 3, "nothing of a cluster is in namespace slurm")]),
    "the namespace is being deleted": (
        namespace_goes, [("", 1, "^1. error: the namespace slurm is being deleted"), ("", 1, "remaining: pods. has 1")]
    ),
    "slurmctld starts": (starting, [("", 1, "^1. error: slurmctld does not run: its pod controller-0 is starting")]),
    "slurmctld's pod is not there": (
        both(starting, lambda c: c.remove("Pod", "controller-0"), lambda c: c.remove("StatefulSet", "controller")),
        [("", 1, 'is not there seen: error: container not found ("slurmctld") mend: slurmstack up')],
    ),
    "nobody may ask Slurm": (
        lambda c: c.refused.update(exec=FORBIDDEN.format("pods/exec")), [("", 3, "^Slurm could not be asked;")]
    ),
    "a task of an array": (queued("13_[1-5%1]", "JobHeldUser"), [("job 13_2", 1, "scontrol release 13\n")]),
    "a job that waits for drained nodes": (
        both(BAD, lambda c: c.node("default-0", "IDLE", "DRAIN", reason="new", by="root"), queued("12", "Resources")),
        [("job 12", 1, "^1. warning: node default-0 is drained by root: new")],
    ),
    "an array, by the number of its last task": (
        both(lambda c: c.past("18_1", "COMPLETED"), lambda c: c.past("18_2", "FAILED", code="7:0"),
             lambda c: c.past("18_[3-4]", "CANCELLED by 0"), lambda c: c.past("18_5", "COMPLETED")),
        [("job 18", 1, "^1. warning: job 18 has ended: of 5 tasks 3 failed: 18_2 (FAILED 7:0), 18_[3-4] (CANCELLED")],
    ),
    "an array that ended well": (
        both(lambda c: c.past("18_1", "COMPLETED"), lambda c: c.past("18_2", "COMPLETED")),
        [("job 18", 0, "job 18 has ended: COMPLETED")],
    ),
    "a heterogeneous job that waits": (
        both(queued("12+0", "Resources", start="1790000000"), queued("12+1", "Resources", start="1790000000")),
        [("job 12", 1, f"12+{part} of alice waits: the parts of a heterogeneous job start together, once all of them")
         for part in (0, 1)] + [("job 12", 1, "them have room seen: Slurm says Resources mend")],
    ),
    "a job that runs": (
        lambda c: c.job("12", "None", state="RUNNING", nodes="default-0"),
        [("job 12", 0, "is running on default-0 seen: 10 min are left of its time limit")],
    ),
    "a job that runs, and a queue that is silent": (
        both(slurm_says(jobs=(124, "")), lambda c: c.past("12", "RUNNING")),
        [("job 12", 0, "job 12 is running"), ("job 12", 0, "could not be")],
    ),
    "a job that ended": (
        lambda c: c.past("12", "COMPLETED"), [("job 12", 0, "has ended: COMPLETED")]
    ),
    "a job that was cancelled": (
        lambda c: c.past("12", "CANCELLED by 0", nodes="None assigned"),
        [("job 12", 1, "has ended: CANCELLED by root seen: exit status 0:0; on no node")],
    ),
    "a job that never ran": (
        both(
            lambda c: c.past("12", "FAILED", code="0:53"),
            lambda c: c.printed("default-0", "slurmd: [12.batch] error: Could not open stdout file /no/12.out: no\n"
                                "slurmd: [13.batch] error: another's\nslurmd: Launching batch job 12 for UID 1"),
        ),
        [("job 12", 1, "its script never ran: a file of its input or output, or its directory, could not"),
         ("job 12", 1, "seen: default-0: Could not open stdout file /no/12.out: no mend: ")],
    ),
    "a job that sbatch refused": (
        lambda c: c.past("12", "FAILED", code="1:0", nodes="None assigned"),
        [("job 12", 1, "has ended: FAILED: it never ran: Slurm refused it when it was submitted")],
    ),
    "a job that a node has got too late": (
        both(
            lambda c: c.past("12", "FAILED", code="0:39"),
            lambda c: c.printed("default-0", "slurmd: launch task StepId=12.0 request from UID:7 GID:7 HOST:10.0.0.1\n"
                                "slurmd: error: Invalid job credential from 7@10.0.0.1: Job credential expired\n"
                                "slurmd: error: Invalid job credential from 8@10.0.0.1: Job credential expired"),
        ),
        [("job 12", 1, "by its node's clock its credential had expired"),
         ("job 12", 1, "default-0: Invalid job credential from 7@10.0.0.1: Job credential expired mend: ")],
    ),
    "a job that its node could not read": (
        both(
            lambda c: c.past("12", "NODE_FAIL"),
            lambda c: c.printed("default-0", "slurmd: error: Munge decode failed: Expired credential\n"
                                "slurmd: error: f: auth_g_verify: REQUEST_BATCH_JOB_LAUNCH has authentication error"),
        ),
        [("job 12", 1, "default-0: Munge decode failed: Expired credential"),
         ("job 12", 1, "default-0: f: auth_g_verify: REQUEST_BATCH_JOB_LAUNCH has authentication error mend: ")],
    ),
    "a job that ran, before its node could read nothing": (
        both(
            lambda c: c.past("12", "FAILED"),
            lambda c: c.printed("default-0", "slurmd: Launching batch job 12 for UID 1\n"
                                "slurmd: error: Munge decode failed: Expired credential"),
        ),
        [("job 12", 1, "from no start to now mend: ")],
    ),
    "a job whose node is lost": (
        both(lambda c: c.past("12", "NODE_FAIL"), lambda c: c.printed("default-0", ""),
             lambda c: c.refused.update(logs="no answer within 5 s")),
        [("job 12", 1, "its node was lost"), ("job 12", 1, "the log of default-0/slurmd: no answer within 5 s")],
    ),
    "a job whose interpreter is not there": (
        both(lambda c: c.past("12", "FAILED", code="2:0"), lambda c: c.past("12.batch", "FAILED"),
             lambda c: c.output.update({"/12.out": "x\nslurmstepd: error: execve(): bad interpreter(/nosuch): No"})),
        [("job 12", 1, "ended with exit status 2; the last error, in /12.out: slurmstepd: error: execve(): bad inter")],
    ),
    "a job whose step has an option that srun does not know": (
        both(lambda c: c.past("12", "FAILED", code="127:0"), lambda c: c.past("12.batch", "FAILED"),
             lambda c: c.output.update({"/12.out": "srun: unrecognized option '--no'\nTry \"srun --help\""})),
        [("job 12", 1, "254 or 255); the last error, in /12.out: srun: unrecognized option '--no' seen: ")],
    ),
    "a job whose script went on after an error": (
        both(lambda c: c.past("12", "FAILED", code="7:0"), lambda c: c.past("12.batch", "FAILED"),
             lambda c: c.output.update({"/12.out": "srun: error: A\n" * 2 + "".join(f"env: {n}\n" for n in range(9)) +
                                        "srun: error: A\nsrun: error: x: task 0: Exited with exit code 2\n"})),
        [("job 12", 1, "7, or 128 more: signal 7 ended a program of it; the last error, in /12.out: srun: error: A"),
         ("job 12", 1, "env: 8 seen: /12.out: srun: error: A seen: /12.out: srun: error: x: task 0: Exited")],
    ),
    "a job whose exit status sacct has cut": (
        lambda c: c.past("12", "FAILED", code="127:0"), [("job 12", 1, "254 or 255")]
    ),
    "a job of which a signal ended a program": (
        lambda c: c.past("12", "FAILED", code="9:0"), [("job 12", 1, "exit status 9, or 128 more: signal 9 ended")]
    ),
    "a job that memory ended": (
        lambda c: c.past("12", "OUT_OF_MEMORY", code="0:125"), [("job 12", 1, "it took more memory than it had asked")]
    ),
    "a job that another user cancelled": (
        lambda c: c.past("12", "CANCELLED by 10001"),
        [("job 12", 1, "ended: CANCELLED by the user with the number 10001 seen")],
    ),
    "a job that its user cancelled": (
        lambda c: c.past("12", "CANCELLED by 7"), [("job 12", 1, "ended: CANCELLED by its own user seen")]
    ),
    "a job that has just failed": (
        lambda c: c.over("12", "COMPLETING", "NonZeroExitCode"), [("job 12", 1, "on default-0 seen: NonZeroExitCode")]
    ),
    "a job that has just ended well": (
        lambda c: c.over("12", "COMPLETING", "None"), [("job 12", 0, "has ended: COMPLETING")]
    ),
    "what nobody knows": (lambda _: None, [(f"job {what}", USAGE, what) for what in ("12", "nonsense", "1;id")]),
    "slurmdbd is away": (slurm_says(sacct=(1, "sacct: no")), [("job 12", 3, "not asked: sacct (sacct: no)")]),
    "the queue hangs": (slurm_says(jobs=(124, "")), [("job 12", 3, "not asked: queue (no answer within 2 s)")]),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_it_answers_and_ends_with_what_it_has_found(
    cluster: RecordedCluster, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    make, asked = ANSWERS[name]
    make(cluster)
    for words, code, told in asked:
        assert run(*words.split()) == code, words
        said = capsys.readouterr().out
        assert told.lstrip("^") in said if "\n" in told else told.lstrip("^") in " ".join(said.split())
        assert not told.startswith("^") or said.startswith(told[1:])
        assert not ("running" in told and "exit status" in said)


def test_a_cluster_that_is_not_there_is_said_without_waiting_for_the_job(
    cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing(cluster)
    said, waited = Event(), []
    monkeypatch.setattr(doctor, "read_job", lambda *_, **_more: waited.append(said.wait(5)))
    assert run("job", "12") == 3
    assert not waited
    said.set()


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
    agent()(cluster)
    assert run("--config", str(stack)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "kubectl here: kubectl --context test" in lines
    assert f"slurmstack here: slurmstack ... --config {stack}" in lines
    assert run() == 1
    assert "slurmstack here" not in capsys.readouterr().out


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


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    ("refused", "unread", "ill"),
    [
        (
            {"Pod": "pods", "Node": "nodes", "StatefulSet": "statefulsets.apps", "Event": "events"},
            dict.fromkeys(("pods", "machines", "workloads", "events"), "not allowed"),
            ["node default-1"],
        ),
        ({"exec": "pods"}, {"slurm": f"not allowed to run commands in its pod; {LOG_IN}"}, ["pod login-0"]),
    ],
    ids=["Kubernetes", "the controller's pod"],
)
def test_what_these_credentials_may_not_read_is_said_and_the_rest_is_looked_at(
    refused: dict[str, str], unread: dict[str, str], ill: list[str]
) -> None:
    cluster = recorded()
    cluster.refused.update({kind: FORBIDDEN.format(name) for kind, name in refused.items()})
    BAD(cluster)
    cluster.unplaced("login-0", "0/2 nodes are available: 2 Insufficient cpu.")
    facts = cluster.look()
    assert facts.unread == unread
    assert [item.about for item in diagnose(facts)] == ill


def test_an_answer_that_was_cut_off_or_that_nobody_understands_is_none() -> None:
    cluster = recorded()
    for name in ("partitions", "database", "end"):
        del cluster.slurm[name]
    cluster.slurm.update(jobs=(0, "12~a mark~(Resou"), nodes=(0, "hello"))
    facts = cluster.look()
    silent = dict.fromkeys(("jobs", "partitions"), "no answer within 3 s")
    assert facts.unread == {**silent, "nodes": "the answer is not understood"}
    assert len(facts.pods) == 12


def test_a_job_s_text_cannot_pass_for_an_answer() -> None:
    cluster = recorded()
    cluster.job("12", "Priority", account="0123456789abcdef nodes 0\n{}\n")
    assert len(cluster.look().nodes) == 2


def test_a_command_to_be_copied_runs_nothing_that_a_user_has_written() -> None:
    cluster = recorded()
    cluster.job("12", "AssocGrpCpuLimit", account="a; $(reboot)\n")
    (said,) = cluster.explain("12")
    assert " account='a; $(reboot)' " in said.mend


@pytest.mark.parametrize(("here", "there"), [(CLOCK + 86400, CLOCK), (CLOCK, CLOCK + 86400)])
def test_a_clock_that_is_ahead_has_no_pod_deleted_by_force(
    monkeypatch: pytest.MonkeyPatch, here: int, there: int
) -> None:
    """That of who looks, or the controller's: a pod that has just begun to end would be overdue by a day."""
    cluster = recorded()
    cluster.thing("Pod", "default-1")["metadata"]["deletionTimestamp"] = ago(-20)
    cluster.slurm["clock"] = (0, str(there))
    monkeypatch.setattr("cli.status.snapshot.time.time", lambda: float(here))
    assert diagnose(cluster.look()) == ()
