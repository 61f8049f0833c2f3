"""Applies that are cut short or come together: the cluster is whole afterwards, and nobody has to mend anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import asking_doctor
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.stacks import ROOT, with_change

POWER_CUT = """\
#!/bin/sh
case " $* " in *" --applyset="*) kill -KILL $PPID; exit 1;; esac
exec {kubectl} "$@"
"""
"""A kubectl at which the command that calls it dies: the namespace, claims and keys are applied then, all else not."""


def begin(slurm: SlurmOnKubernetes, directory: Path, **environment: str) -> subprocess.Popen[str]:
    """Start `up` with a stack file of its own, as the sections are now."""
    directory.mkdir(exist_ok=True)
    mine = SlurmOnKubernetes(engine=slurm.engine, directory=directory, sections=slurm.sections)
    command = ["up", "--yes", "--engine", slurm.engine, "--config", str(mine.file)]
    return subprocess.Popen(
        [sys.executable, "-m", "cli.entry", *command],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_at_once_after_one_that_was_killed_midway_come_one_after_the_other(
    two_nodes: SlurmOnKubernetes, tmp_path: Path
) -> None:
    slurm = two_nodes
    if slurm.engine != "kubectl":
        pytest.skip("Pulumi locks its own state")
    shim = tmp_path / "bin" / "kubectl"
    shim.parent.mkdir()
    shim.write_text(POWER_CUT.format(kubectl=slurm.kubectl.program), encoding="utf-8")
    shim.chmod(0o755)
    before = slurm.sections
    slurm.sections = with_change(before, "slurm.settings.MessageTimeout", 33)
    killed = begin(slurm, tmp_path / "killed", PATH=f"{shim.parent}:{os.environ['PATH']}")
    killed.communicate()
    assert killed.returncode < 0
    assert slurm.kubectl.items("lease", "slurmstack", "-n", slurm.namespace), "nobody gave the lock back"
    assert asking_doctor.first(slurm)["cause"] == "another command is changing the cluster just now"
    cut = "an earlier command was cut short"
    wait_until(lambda: asking_doctor.first(slurm)["cause"].startswith(cut), "doctor takes it for dead")

    first = begin(slurm, tmp_path / "first")
    slurm.sections = before
    second = begin(slurm, tmp_path / "second")
    said = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert all(f"Waiting for slurmstack up of {os.environ.get('USER') or os.getuid()}@" in text for text in said), said
    assert not slurm.kubectl.items("lease", "slurmstack", "-n", slurm.namespace)
    slurm.sections = before
    if slurm.preview()["changes"]:
        slurm.sections = with_change(before, "slurm.settings.MessageTimeout", 33)
        assert slurm.preview()["changes"] == [], "parts of one and parts of the other"
        slurm.sections = before
        slurm.up()
