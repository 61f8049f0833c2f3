"""Commands, signals and threads of the images' programs, as real processes."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from images.common.command import run
from images.common.install import PROGRAMS, install_programs
from images.controller.check import check

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_command_that_hangs_is_ended() -> None:
    assert run(["sleep", "60"], timeout=0.2).code == 124


def test_pid_1_ends_at_once_on_sigterm() -> None:
    wait = "end_on_sigterm(); print('ready', flush=True); import time; time.sleep(60)"
    code = f"from images.common.process import end_on_sigterm; {wait}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stdout is not None
    process.stdout.readline()

    process.terminate()

    assert process.wait(timeout=5) == 128 + 15
    process.stdout.close()


def test_a_program_of_which_a_thread_has_died_ends_and_says_why() -> None:
    code = (
        "import threading, time\n"
        "from images.common.log import Log\n"
        "from images.common.process import end_with_threads\n"
        "end_with_threads(Log('elastic'))\n"
        "threading.Thread(target=lambda: {}['rolls'], daemon=True, name='rolls').start()\ntime.sleep(60)\n"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("elastic: error: rolls has ended, and this program with it:")
    assert "KeyError: 'rolls'" in done.stdout


@pytest.mark.parametrize("folder", sorted(PROGRAMS))
def test_every_program_of_the_images_starts_a_main_that_exists(folder: str, tmp_path: Path) -> None:
    for path in install_programs(folder, tmp_path):
        assert path.stat().st_mode & stat.S_IXUSR
        module, _, function = PROGRAMS[folder][path.name].partition(":")
        code = f"from {module} import {function or 'main'} as main; assert callable(main)"
        subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_a_slurmctld_that_hangs_at_its_trial_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    fake = tmp_path / "slurmctld"
    fake.write_text("#!/bin/bash\necho 'slurmctld: thinking'; sleep 60\n")
    fake.chmod(0o755)
    me = pwd.getpwuid(os.getuid()).pw_name
    verdict = check({"slurm.conf": "ClusterName=a\n"}, program=str(fake), user=me, timeout=0.5)
    assert not verdict.starts
    assert verdict.complaints == ("error: slurmctld is not up after 0.5 s; its last line: thinking",)
