"""`slurmstack health`: the table of nodes, and a node that is measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import health as health_commands
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from images.common.health.contract import Result as Found
from images.common.health.contract import Status
from images.common.health.report import Report, encode
from images.common.health.slurm import Record
from tests.fakes.kubectl import PlayedKubectl
from tests.stacks import ROOT, dev, with_change
from tests.unit.cli.command_line import stack_file

NOW = 1_795_000_000.0
"""Seconds since 1970: 2026-11-18T11:06:40Z."""

NAMES = (
    "disks", "dns", "filesystem", "gpu-free", "gpu-presence", "infiniband", "munge",
)  # fmt: skip

Answer = subprocess.CompletedProcess[str]


def answer(stdout: str = "", stderr: str = "", code: int = 0) -> Answer:
    return subprocess.CompletedProcess([], code, stdout, stderr)


def node(
    name: str,
    *states: str,
    age: float | None = 12,
    reason: str = "",
    note: str = "",
    results: dict[str, Found] | None = None,
) -> Record:
    """A node whose checks are well but those that are given; `age` None: it never reported. `cpu-...` has no GPUs."""
    usual = [check for check in NAMES if not (name.startswith("cpu") and check.startswith(("gpu-", "infiniband")))]
    found = {check: Found(status=Status.OK) for check in usual} | (results or {})
    comment = note if age is None else encode(Report(at=int(NOW - age), results=found, note=note))
    return Record(name=name, states=frozenset({*(states or ("IDLE",)), "DYNAMIC_NORM"}), reason=reason, comment=comment)


def printed(nodes: Sequence[Record]) -> str:
    """What scontrol prints of them."""
    entries = [
        {
            "name": node.name, "state": sorted(node.states), "reason": node.reason, "comment": node.comment,
            "reason_changed_at": node.reason_at or 0,
        }
        for node in nodes
    ]  # fmt: skip
    return json.dumps({"nodes": entries})


@dataclass(frozen=True, kw_only=True)
class FakeCluster(PlayedKubectl):
    """kubectl, whose controller knows these nodes."""

    nodes: Sequence[Record] = ()
    controller: Answer | None = None
    """What the controller answers instead of its nodes."""
    namespace: Answer = field(default_factory=lambda: answer("namespace/slurm\n"))

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float) -> Answer:
        del stdin, check
        match arguments:
            case ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld", "--", "sh", "-c", script):
                assert script == "date +%s && scontrol show nodes --json"
                return self.controller or answer(f"{NOW:.0f}\n{printed(self.nodes)}")
            case ("get", "pod", "-n", "slurm", "-l", "slurmstack/active=yes", *_):
                return answer()  # there is one controller
            case ("get", "--ignore-not-found", "namespace", "slurm", "-o", "name"):
                return self.namespace
        raise AssertionError(f"unexpected kubectl {arguments}")


class Unreachable:
    """In the place of `reach`, where the cluster does not answer."""

    def __call__(self, _: object) -> Kubectl:
        raise Failure("the cluster does not answer")


def health(monkeypatch: pytest.MonkeyPatch, cluster: object, *arguments: str) -> Result:
    """The command, on the development stack with this cluster."""
    reach = cluster if isinstance(cluster, Unreachable) else lambda _: cluster
    monkeypatch.setattr(health_commands, "reach", reach)
    return CliRunner().invoke(app, ["health", *arguments])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception


FULL = Found(status=Status.FAIL, fault="node", message="/jail: 97 % of the space used, 95 % allowed")
LOST = Found(status=Status.FAIL, fault="hardware", message="GPU 3: GPU is lost")
LATE = Found(status=Status.WARN, fault="node", message="the jail took 0.7 s")
HUNG = Found(status=Status.NOT_CHECKED, message="nvidia-smi did not end in 8 s")

WELL = node("cpu-0")
DISKS = node("cpu-1", "IDLE", "DRAIN", reason=f"health/disks [node]: {FULL.message}", results={"disks": FULL})
EXAMPLE = [
    node("gpu-10", "DOWN", "NOT_RESPONDING", age=4800, reason="Not responding"),
    node("gpu-1", "MIXED", "DRAIN", reason="fan is replaced on Monday, ask Carol before you resume it"),
    node(
        "gpu-0", "MIXED", "DRAIN", age=65, reason=f"health/gpu-presence [hardware]: {LOST.message}",
        results={"filesystem": LATE, "gpu-presence": LOST, "gpu-free": HUNG},
    ),
    node("gpu-3", "MIXED", "DRAIN", age=250, reason="health/kubernetes [node]: machine m7 is cordoned"),
    DISKS,
    WELL,
]  # fmt: skip


def rows(result: Result) -> list[str]:
    """The lines of the table, without the spaces at their ends."""
    return [line.rstrip() for line in result.stdout.splitlines()]


# ---------------------------------------------------------------- the table


def test_the_table_is_the_one_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    result = health(monkeypatch, FakeCluster(nodes=EXAMPLE))
    documented = (ROOT / "docs" / "health.md").read_text(encoding="utf-8")
    assert "".join(f"    {line}\n" for line in rows(result)) in documented
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("record", "told", "kind"),
    [
        (node("w-0", results={"disks": FULL}), "w-0 IDLE 12 s ago fail disks [node]: /jail:", "failing"),
        (node("w-0", results={"disks": FULL}, age=661), "was fail disks", "unknown"),
        (node("w-0", age=None), "w-0 IDLE never not checked: no report", "unknown"),
        (node("w-0", age=4080), "w-0 IDLE 68 min ago: old was ok (7 checks)", "unknown"),
        (node("w-0", age=-3600), "its clock: 60 min ahead", "unknown"),
        (node("w-0", "IDLE", "POWERED_DOWN", age=None), "w-0 IDLE+POWERED_DOWN never asleep", "asleep"),
        (node("w-0", reason="health/disks [node]: x"), "w-0 IDLE 12 s ago ok (7 checks)", "well"),  # the drain is over
        (node("w-0", "IDLE", "FAIL", reason="health/disks [node]:..."), "ago health/disks [node]:... ok", "well"),
        (node("w-0", "NOT_RESPONDING", "IDLE", "DRAIN"), "w-0 IDLE*+DRAIN", "unknown"),
    ],
)
def test_a_node_s_line_says_how_it_is(monkeypatch: pytest.MonkeyPatch, record: Any, told: str, kind: str) -> None:
    result = health(monkeypatch, FakeCluster(nodes=[record]))
    printed = " ".join(result.stdout.split())
    assert told in printed
    assert f"1 {kind}" in printed
    assert result.exit_code == (0 if kind in {"well", "asleep"} else 1)


def test_what_a_node_says_cannot_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "\x1b[2J[red]all is well"
    result = health(monkeypatch, FakeCluster(nodes=[node("w-0", "IDLE", "DRAIN", reason=reason)]))
    assert "\x1b" not in result.stdout
    assert "[red]all is well" in result.stdout


def test_where_checks_are_off_that_is_said_and_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = FakeCluster(nodes=[node("cpu-0", age=100_000)])
    off = stack_file(tmp_path, with_change(dev(), "health", {"enabled": False}))
    result = health(monkeypatch, cluster, "--json", "--config", str(off))
    assert result.exit_code == 0
    assert "health checks are off in this stack" in result.stderr


# ---------------------------------------------------------------- which nodes, and JSON


def test_failing_leaves_out_what_is_well_but_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = health(monkeypatch, FakeCluster(nodes=[WELL, DISKS]), "--failing")
    assert "cpu-0" not in result.stdout
    assert "cpu-1" in result.stdout
    assert rows(result)[-1] == "2 nodes: 1 well, 1 failing, 0 unknown"


def test_the_json_has_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("w-0", note="rack 7"), node("w-1", results={"disks": FULL})]
    result = health(monkeypatch, FakeCluster(nodes=nodes), "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert (data["namespace"], data["at"]) == ("slurm", "2026-11-18T11:06:40Z")
    assert data["counts"] == {"well": 1, "failing": 1, "unknown": 0, "asleep": 0}
    first, second = data["nodes"]
    assert (first["name"], first["health"], first["note"], first["age_seconds"]) == ("w-0", "well", "rack 7", 12)
    assert second["results"]["disks"] == {"status": "fail", "fault": "node", "message": FULL.message}
    failing = json.loads(health(monkeypatch, FakeCluster(nodes=nodes), "--json", "--failing").stdout)
    assert [entry["name"] for entry in failing["nodes"]] == ["w-1"]
    assert failing["counts"] == data["counts"]


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (answer(stderr="slurm_load_node error: x\ncommand terminated with exit code 1\n", code=1),
         "the controller could not be asked for the nodes: slurm_load_node error: x",
         "whether controller-0 runs"),
        (answer('1800000000\n{"nodes": {}}'), "is not understood", ""),
    ],
    ids=["slurmctld away", "no list"],
)  # fmt: skip
def test_what_goes_wrong_is_said_once(monkeypatch: pytest.MonkeyPatch, given: Any, message: str, hint: str) -> None:
    failure = failure_of(health(monkeypatch, FakeCluster(controller=given)))
    assert message in failure.message
    assert "command terminated" not in failure.message
    assert hint in failure.hint
    assert failure.code == 1


def test_without_the_namespace_the_hint_is_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    away = answer(stderr='Error from server (NotFound): pods "controller-0" not found\n', code=1)
    failure = failure_of(health(monkeypatch, FakeCluster(controller=away, namespace=answer())))
    assert (failure.message, failure.hint) == ("there is no namespace slurm", "`slurmstack up` makes it")


# ---------------------------------------------------------------- one that is measured


@pytest.mark.parametrize("code", [0, 1])
def test_a_node_is_measured_by_the_tests_of_nodes_and_their_exit_status_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    started: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return answer(code=code)

    monkeypatch.setattr("cli.commands.health.subprocess.run", run)
    on = str(stack_file(tmp_path, with_change(dev(), "health", {"tests": {"enabled": True}})))
    assert health(monkeypatch, FakeCluster(), "test", "w-0", "--config", on).exit_code == code
    program = ["-c", "health-tests", "--", "/usr/libexec/slurmstack/health-tests", "--node", "w-0"]
    assert started[0][-len(program) - 4 :] == ["exec", "-n", "slurm", "deployment/health-watch", *program]


def test_a_stack_without_tests_of_nodes_measures_none(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of(health(monkeypatch, Unreachable(), "test", "w-0"))
    assert (failure.message, failure.code) == ("tests of nodes are off in this stack", 2)
