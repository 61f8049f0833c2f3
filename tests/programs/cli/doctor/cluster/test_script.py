"""The questions to Slurm, as a shell in the controller's pod puts them: what hangs loses no other's answer."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli.kubectl.pods import _answers, _script
from cli.status.questions import DOCTOR, questions, read_answers

MARK = "0123456789abcdef"
FINE = {"sinfo": "echo main", "scontrol": 'echo "{}"', "squeue": "true"}
HANGS = "exec sleep 600"
NO_ANSWER = "exit 124"
"""As timeout(1) says of what hangs."""
EACH = 5
"""Seconds for each answer: a machine with other work takes its time to start a program."""


def answers(directory: Path, **programs: str) -> dict[str, tuple[int, str]]:
    """What the script prints where Slurm's commands are these."""
    for name, text in {
        **FINE,
        "munge": "true",
        "unmunge": "true",
        "sacctmgr": "true",
        **programs,
    }.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (directory / name).chmod(0o755)
    script = _script(MARK, *questions(DOCTOR), each=EACH, slurmdbd=True)
    environment = {"PATH": f"{directory}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return _answers(done.stdout, MARK)


def parse(found: dict[str, tuple[int, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """What doctor makes of them."""
    return read_answers(found, replace(DOCTOR, seconds=EACH, each=EACH))


def test_each_question_has_its_answer(tmp_path: Path) -> None:
    found = answers(tmp_path)
    assert {name for name, (code, _) in found.items() if code == 0} >= {"slurmctld", "nodes", "jobs", "database"}
    assert abs(int(found["clock"][1]) - time.time()) < 3600


def test_where_slurmctld_hangs_the_others_are_not_asked(tmp_path: Path) -> None:
    found = answers(tmp_path, sinfo=NO_ANSWER)
    assert "nodes" not in found
    assert parse(found)[0]["slurmctld"] == "no answer within 5 s"


def test_a_question_that_hangs_is_missing_alone(tmp_path: Path) -> None:
    found = answers(tmp_path, squeue=f"cd {tmp_path}; [ ! -e hung ] || {NO_ANSWER}; touch hung; {HANGS}")
    assert parse(found)[1]["jobs"] == "no answer within 5 s"
    assert "partitions" in found
