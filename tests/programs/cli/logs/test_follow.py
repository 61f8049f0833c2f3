"""`slurmstack logs --follow`, with a program in the place of kubectl that writes as logs are written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.logs import follow as module
from cli.logs.follow import follow
from cli.logs.lines import Line
from cli.logs.sources import Container

SINCE = datetime(2026, 11, 25, 16, tzinfo=UTC)


def container(pod: str) -> Container:
    return Container(pod=pod, name="slurmd", component="worker", pool="", machine="", owners=(), restarted=False)


def kubectl(directory: Path, script: str) -> Kubectl:
    """`$pod` is whose log is asked for, `$since` from when, as the options say."""
    program = directory / "kubectl"
    find = "for word; do case $before in -n) pod=;; slurm) pod=$word;; esac; before=$word; since=${word#*=}; done"
    program.write_text(f"#!/bin/sh\n{find}\necho $$ >> {directory}/pids\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return Kubectl(program=str(program), context="test", kubeconfig=None)


def texts(lines: Iterator[Line], count: int) -> list[str]:
    return [f"{line.place} {line.text}" for line in islice(lines, count)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.2)


def test_lines_of_several_logs_come_in_the_order_of_time_and_the_logs_are_let_go(tmp_path: Path) -> None:
    script = (
        "case $pod in a-0) sleep 0.2; echo 2026-11-25T16:00:01Z first; echo 2026-11-25T16:00:03Z third;;\n"
        "a-1) echo 2026-11-25T16:00:02Z second;; esac; exec sleep 60"
    )
    plan = {container(name): lambda _: True for name in ("a-0", "a-1")}
    lines = follow(kubectl(tmp_path, script), "slurm", lambda: plan, SINCE)
    assert texts(lines, 3) == ["a-0/slurmd first", "a-1/slurmd second", "a-0/slurmd third"]
    lines.close()
    for pid in (tmp_path / "pids").read_text(encoding="utf-8").split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_log_that_has_ended_is_opened_again_after_its_last_line(tmp_path: Path) -> None:
    script = (
        "case $since in 2026-11-25T16:00:00Z) echo 2026-11-25T16:00:01Z one; echo 2026-11-25T16:00:01Z two;;\n"
        "2026-11-25T16:00:01Z) echo 2026-11-25T16:00:01Z two; echo 2026-11-25T16:00:02Z three; exec sleep 60;; esac"
    )
    lines = follow(kubectl(tmp_path, script), "slurm", lambda: {container("a-0"): lambda _: True}, SINCE)
    assert texts(lines, 3) == ["a-0/slurmd one", "a-0/slurmd two", "a-0/slurmd three"]
    lines.close()


def test_a_pod_that_comes_later_is_followed_and_a_plan_that_fails_ends_nothing(tmp_path: Path) -> None:
    script = "echo 2026-11-25T16:00:01Z is $pod; exec sleep 60"
    asked: list[float] = []

    def plan() -> dict[Container, object]:
        asked.append(time.monotonic())
        if len(asked) == 2:
            raise Failure("the API server is away")
        return {container(name): str.strip for name in ("a-0", "a-1")[: len(asked)]}

    lines = follow(kubectl(tmp_path, script), "slurm", plan, SINCE)  # type: ignore[arg-type]
    assert texts(lines, 2) == ["a-0/slurmd is a-0", "a-1/slurmd is a-1"]
    lines.close()


def test_a_look_for_pods_that_hangs_keeps_no_line_back(tmp_path: Path) -> None:
    """As when slurmctld is silent, which is when somebody follows the log of a job."""
    script = "echo 2026-11-25T16:00:01Z one; sleep 1; echo 2026-11-25T16:00:02Z two; exec sleep 60"
    hangs, asked = threading.Event(), []

    def plan() -> dict[Container, Callable[[str], bool]]:
        asked.append(1)
        if len(asked) > 1:
            hangs.wait(60)
        return {container("a-0"): lambda _: True}

    lines = follow(kubectl(tmp_path, script), "slurm", plan, SINCE)
    assert texts(lines, 2) == ["a-0/slurmd one", "a-0/slurmd two"]
    assert len(asked) == 2
    hangs.set()
    lines.close()


def test_the_log_of_what_is_over_is_read_once(tmp_path: Path) -> None:
    """An init container, or a Job's pod: kubectl would be started for it every few seconds."""
    over = replace(container("a-0"), over=True)
    other = "sleep 1; echo 2026-11-25T16:00:02Z two; exec sleep 60"
    script = f"case $pod in a-0) echo 2026-11-25T16:00:01Z one;; *) {other};; esac"
    plan = {over: lambda _: True, container("a-1"): lambda _: True}
    lines = follow(kubectl(tmp_path, script), "slurm", lambda: plan, SINCE)
    assert texts(lines, 2) == ["a-0/slurmd one", "a-1/slurmd two"]
    lines.close()
    assert len((tmp_path / "pids").read_text(encoding="utf-8").split()) == 2


def test_only_lines_that_are_wanted_are_shown(tmp_path: Path) -> None:
    script = "echo 2026-11-25T16:00:01Z job 5; echo 2026-11-25T16:00:02Z job 6; exec sleep 60"
    lines = follow(kubectl(tmp_path, script), "slurm", lambda: {container("a-0"): lambda text: "6" in text}, SINCE)
    assert texts(lines, 1) == ["a-0/slurmd job 6"]
    lines.close()


def test_more_logs_than_the_api_server_should_carry_are_refused(tmp_path: Path) -> None:
    plan = {container(f"a-{number}"): lambda _: True for number in range(module.MOST + 1)}
    with pytest.raises(Failure, match="too many to follow"):
        next(follow(kubectl(tmp_path, "exit 1"), "slurm", lambda: plan, SINCE))
