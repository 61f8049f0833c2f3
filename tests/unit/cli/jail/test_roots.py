"""Commands about roots: what the Job that looks is like, what is refused, and before what."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands import jail as commands
from cli.errors import Failure, Refused
from cli.jail import roots
from cli.kubectl.client import Kubectl
from cli.program.values import reveal
from cli.stack import open_stack
from config import load_config
from local.report import PlainReport
from tests import stacks
from tests.graph.state import compare_files
from tests.recordings import record
from tests.unit.cli.command_line import stack_file

REPORT = PlainReport(io.StringIO())
"""Containers of a pod that leads into the root `half`."""
FOUND = [
    {"name": "", "whole": True, "version": "24.11-a", "release": "24.11", "filled": "then", "carried_from": None,
     "left_out": 0, "bytes": 2**30, "more": False},
    {"name": "blue", "whole": True, "version": "24.11-b", "release": "24.11", "filled": "now", "carried_from": "",
     "left_out": 3, "bytes": 2**31, "more": True},
    {"name": "half", "whole": False, "version": "", "release": "", "filled": "", "carried_from": None, "left_out": 0,
     "bytes": 0, "more": False},
]  # fmt: skip


def stack(**jail: Any) -> dict[str, Any]:
    return {**stacks.existing(), "jail": jail}


class Cluster:
    """One that has what the program registers for a stack, whose Jobs of ours end at once with an answer."""

    def __init__(self, sections: dict[str, Any], answer: str = json.dumps(FOUND)) -> None:
        found = record(sections, stack="test")
        self.objects = [reveal(item.inputs) for item in found if item.type.startswith("kubernetes:")]
        self.made: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []
        self.answer = answer
        self.context = "test"
        self.interrupts = False
        """Whether somebody presses Ctrl-C while a Job is waited for."""
        self.ended: list[str] = []
        """Jobs that were deleted."""

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        if kind == "pod" and arguments[-1].startswith("job-name="):
            ended = {"name": "populate", "state": {"terminated": {"exitCode": 0}}}
            return [{"metadata": {"name": "pod"}, "status": {"containerStatuses": [ended]}}]
        if kind == "pod":
            return self.pods
        if kind == "job" and arguments[-1].endswith("jail-roots"):
            return [item for item in self.made if item["metadata"]["name"] not in self.ended]
        if kind == "job" and arguments[0] != "-n":
            if self.interrupts:
                raise KeyboardInterrupt
            return [{"status": {"conditions": [{"type": "Complete", "status": "True"}]}}]
        return [item for item in self.objects if item["kind"].lower() in kind.split(",")]

    def run(self, *arguments: str, stdin: str = "", **_: Any) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "create":
            self.made += json.loads(stdin)["items"]
        if arguments[:2] == ("delete", "job"):
            self.ended.append(arguments[2])
        return subprocess.CompletedProcess(arguments, 0, self.answer if arguments[0] == "logs" else "", "")

    def template(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = [item for item in self.objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
        return dict(found)

    def lead(self, component: str, pod: dict[str, Any]) -> None:
        self.pods.append({"metadata": {"labels": {"app.kubernetes.io/component": component}}, "spec": pod})

    def end_jobs(self) -> None:
        for item in self.objects:
            item["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


def as_kubectl(cluster: Cluster) -> Kubectl:
    return cast("Kubectl", cluster)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["jail", *arguments])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception


def test_a_root_that_anything_uses_is_not_removed() -> None:
    sections = stack(root="blue")
    cluster, other = Cluster(sections), load_config(stack(root="green"))
    kubectl = as_kubectl(cluster)
    with pytest.raises(Refused, match=r"jail\.root"):
        roots.refuse_used(kubectl, load_config(sections), "slurm", "blue")
    carries = load_config(stack(root="green", carry=["/opt"], carry_from="blue"))
    with pytest.raises(Refused, match=r"jail\.carry_from"):
        roots.refuse_used(kubectl, carries, "slurm", "blue")
    with pytest.raises(Refused, match=r"pods of \w+ would lead into"):
        roots.refuse_used(kubectl, other, "slurm", "blue")
    cluster.lead("worker", cluster.template("StatefulSet", "cpu")["spec"]["template"]["spec"])
    with pytest.raises(Refused, match="in use: 1 worker pod"):
        roots.refuse_used(kubectl, other, "slurm", "blue")
    cluster.pods.clear()
    cluster.objects = [item for item in cluster.objects if item["kind"] == "Job"]
    with pytest.raises(Refused, match="is filling a root and needs 'blue'"):
        roots.refuse_used(kubectl, other, "slurm", "blue")
    cluster.end_jobs()
    roots.refuse_used(kubectl, other, "slurm", "blue")


@pytest.mark.parametrize(
    ("jail", "version", "why"),
    [
        ({"root": "blue"}, "24.11", ""),
        ({}, "26.05", "jail.root: the first root was filled with Slurm 24.11, and slurm.version is 26.05"),
        ({"root": "half"}, "26.05", ""),
        ({"root": "new", "carry": ["/opt"]}, "26.05", ""),
        ({"root": "new", "carry": ["/opt"], "carry_from": "half"}, "24.11", "there is no root 'half' that is whole"),
        ({"root": "blue", "carry": ["/opt"], "carry_from": "gone"}, "24.11", ""),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_touched(jail: dict[str, Any], version: str, why: str) -> None:
    sections = {**stack(**jail), "slurm": {"version": version}}
    found = roots.misfit(load_config(sections), FOUND)
    assert why in found
    assert bool(why) == bool(found)


def test_the_volume_is_looked_at_only_where_root_or_release_change() -> None:
    old, new = stack(), {**stack(root="blue"), "slurm": {"version": "26.05"}}
    cluster, will = Cluster(old), Cluster(new)
    logins = [item.template("StatefulSet", "login") for item in (cluster, will)]

    def look(was: dict[str, Any] | None, to: dict[str, Any]) -> None:
        roots.refuse_misfit(lambda: as_kubectl(cluster), load_config(new), was, to, REPORT)

    look(None, logins[1])
    look(logins[0], logins[0])
    assert not cluster.made
    with pytest.raises(Refused, match=r"the root 'blue' was filled with Slurm 24\.11"):
        look(logins[0], logins[1])
    (made,) = cluster.made
    image = made["spec"]["template"]["spec"]["containers"][0]["image"]
    assert "24.11" in image, "it is there: the new one may not be built yet"


def test_before_the_engine_applies_the_volume_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = stack(), {**stack(root="blue"), "slurm": {"version": "26.05"}}
    cluster = Cluster(old)
    monkeypatch.setattr(roots, "reach", lambda _: as_kubectl(cluster))
    file = stack_file(tmp_path, new)

    with pytest.raises(Refused, match=r"the root 'blue' was filled with Slurm 24\.11"):
        roots.refuse_root_of_engine(open_stack(file), compare_files(tmp_path, old, new))
    roots.refuse_root_of_engine(open_stack(file), compare_files(tmp_path, new, new))
    assert len(cluster.made) == 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    cluster = Cluster(stack(root="blue"))
    made = open_stack(stack_file(tmp_path, stack(root="blue")))
    monkeypatch.setattr(commands, "_opened", lambda _: (made, as_kubectl(cluster), "slurm", REPORT))
    return cluster


def test_what_was_not_carried_is_listed(opened: Cluster) -> None:
    opened.answer = json.dumps([FOUND[0], FOUND[1], {**FOUND[0], "name": "green", "ended_early": "/opt/app"}])
    lines = [line.partition("no pods")[2].strip() for line in call("list").output.splitlines()]
    assert lines == ["", "3 files were not carried", "carrying ended early, at /opt/app"]


def test_the_first_root_and_one_in_use_are_not_removed(opened: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "held", lambda *_: nullcontext())
    assert failure_of(call("remove", "first", "--yes")).code == 3
    assert failure_of(call("remove", "blue", "--yes")).code == 3
    assert failure_of(call("remove", "half")).code == 3, "nobody was asked"
    assert not opened.made
    assert call("remove", "half", "--yes").exit_code == 0
    assert opened.made[0]["spec"]["template"]["spec"]["containers"][0]["command"][-1] == "remove"


def test_a_removal_that_nobody_waits_for_any_more_does_not_happen_later(opened: Cluster) -> None:
    opened.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        roots.ask(
            as_kubectl(opened), "slurm", roots.filling_job(as_kubectl(opened), "slurm"), REPORT, "remove", ROOT="x"
        )
    assert opened.ended == [opened.made[0]["metadata"]["name"]]


def left_behind(root: str) -> dict[str, Any]:
    """A Job of a command that was killed."""
    container = {"env": [{"name": "ROOT", "value": root}]}
    return {
        "kind": "Job",
        "metadata": {"name": f"jail-remove-of-{root}"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_a_root_that_is_still_to_be_removed_is_not_gone_back_to() -> None:
    old, new = stack(), stack(root="blue")
    cluster, will = Cluster(old), Cluster(new)
    was, to = (item.template("StatefulSet", "login") for item in (cluster, will))
    cluster.made = [left_behind("green")]
    roots.refuse_misfit(lambda: as_kubectl(cluster), load_config(new), was, to, REPORT)
    cluster.made = [left_behind("blue")]
    with pytest.raises(Refused, match="jail-remove-of-blue has not ended, and removes the root 'blue'"):
        roots.refuse_misfit(lambda: as_kubectl(cluster), load_config(new), was, to, REPORT)
