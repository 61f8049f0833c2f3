"""A slurmctld that is started to try a configuration: it is ended, heard to the end, and given up."""

from __future__ import annotations

import os
import pwd
import signal
import stat
from pathlib import Path

from images.controller.check import Verdict, check

FILES = {"slurm.conf": "ClusterName=a\n"}
ME = pwd.getpwuid(os.getuid()).pw_name


def fake_slurmctld(directory: Path, script: str) -> str:
    program = directory / "slurmctld"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_the_scratch_slurmctld_is_ended_as_soon_as_it_is_up(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = fake_slurmctld(
        tmp_path, f"echo $$ > {pid_file}; echo 'slurmctld: Running as primary controller'; sleep 60"
    )

    verdict = check(FILES, program=program, user=ME)

    assert verdict == Verdict(starts=True, complaints=())
    assert not Path(f"/proc/{pid_file.read_text().strip()}/cmdline").exists()


def test_one_that_ends_is_heard_to_the_end(tmp_path: Path) -> None:
    program = fake_slurmctld(tmp_path, "echo 'slurmctld: error: a'; printf 'slurmctld: fatal: b'; exit 1")

    verdict = check(FILES, program=program, user=ME)

    assert verdict == Verdict(starts=False, complaints=("error: a", "fatal: b"))


def test_one_that_hangs_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    program = fake_slurmctld(tmp_path, "echo 'slurmctld: thinking'; sleep 60")

    verdict = check(FILES, program=program, user=ME, timeout=0.5)

    assert not verdict.starts
    assert verdict.complaints == ("error: slurmctld is not up after 0.5 s; its last line: thinking",)


def test_a_helper_that_lives_on_holds_nobody_up(tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    program = fake_slurmctld(tmp_path, f"setsid bash -c 'echo $$ > {helper}; sleep 600' & echo thinking; sleep 600")
    try:
        verdict = check(FILES, program=program, user=ME, timeout=0.5)
    finally:
        os.killpg(int(helper.read_text()), signal.SIGKILL)  # it still lives, or this would fail

    assert verdict.complaints == ("error: slurmctld is not up after 0.5 s; its last line: thinking",)
