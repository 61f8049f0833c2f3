"""The program in C that slurmd starts around each job: it makes a job's directory, and leaves nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs.waiting import wait_until
from tests.stacks import ROOT

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "make"))), reason="no C compiler here; the images' own build compiles it"
)


class Around:
    """The program, compiled as the images compile it, in places of its own."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self._directory = directory
        command = ["make", "-C", str(ROOT / "images/health/native"), f"BUILD={directory}", f"ROOT={self.root}"]
        subprocess.run(command, check=True, capture_output=True)
        for program in ("prolog", "epilog"):
            (directory / f"health-{program}").symlink_to(directory / "around-job")
        self.jobs = self.root / "tmp/jobs"
        self.spool = self.root / "var/spool/slurmd"
        for made in (self.jobs.parent, self.spool, self.root / "run/slurmstack/health"):
            made.mkdir(parents=True)

    def run(self, program: str, job: str = "17") -> str:
        """What it says; it never fails."""
        environment = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_GID": str(os.getgid())}
        path = self._directory / f"health-{program}"
        done = subprocess.run([path], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture
def around(tmp_path: Path) -> Around:
    return Around(tmp_path)


def test_a_job_has_a_directory_of_its_own_until_it_ends(around: Around) -> None:
    around.run("prolog")
    assert (around.jobs / "17").stat().st_mode & 0o777 == 0o700
    around.run("epilog")
    assert list(around.jobs.iterdir()) == []


def test_what_the_job_and_pmix_have_left_goes_and_nothing_else_does(around: Around, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    around.run("prolog")
    around.jobs.joinpath("17", *["d" * 100] * 20).mkdir(parents=True)
    (around.jobs / "17/link").symlink_to(elsewhere)
    names = ("pmix.17.0", "spmix_appdir_1000_17.0", "pmix.170.0", "spmix_appdir_17_18.0", "cred_state")
    for name in names:
        (around.spool / name).mkdir()
    around.run("epilog")
    assert not (around.jobs / "17").exists()
    wait_until(lambda: list(around.jobs.iterdir()) == [])
    wait_until(lambda: {path.name for path in around.spool.iterdir()} == set(names[2:]))
    assert (elsewhere / "kept").exists()


def test_a_job_that_was_here_before_gets_a_new_directory_but_keeps_what_sbcast_has_sent(around: Around) -> None:
    around.run("prolog")
    (around.jobs / "17/sent").touch()
    (around.root / "run/slurmstack/job-mounts/17").mkdir(parents=True)
    around.run("prolog")
    assert (around.jobs / "17/sent").exists()
    (around.root / "run/slurmstack/job-mounts/17").rmdir()
    around.run("prolog")
    assert list((around.jobs / "17").iterdir()) == []


def test_a_directory_of_jobs_that_is_somebody_s_is_not_entered(around: Around, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/17").mkdir()
    around.jobs.symlink_to(tmp_path / "elsewhere")
    assert "tmp/jobs" in around.run("prolog", "18")
    around.run("epilog")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["17"]


def test_where_there_are_gpus_python_does_the_rest(around: Around) -> None:
    (around.root / "run/slurmstack/health/gpus").touch()
    assert "health-gpus: No such file" in around.run("prolog")
    program = around.root / "usr/libexec/slurmstack/health-gpus"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$1 of $SLURM_JOB_ID" >&2\n')
    program.chmod(0o755)
    assert around.run("prolog") == "prolog of 17\n"
    assert around.run("epilog") == "epilog of 17\n"
