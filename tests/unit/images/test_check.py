"""What slurmctld of both versions really prints (data/, recorded), and what the check makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.controller.check import Checker, Verdict, clean, complaints_in
from tests.unit.images.paths import DATA

DIRECTORY = "/var/scratch"

EXPECTED = {
    "good": (),
    "misspelt": ("Parsing error at unrecognized key: SchedulerTpye", "fatal: Unable to process configuration file"),
    "unknownnode": ('lookup failure for node "nosuchnode"', "fatal: Invalid node names in partition x"),
    "badpartkey": ("unrecognized key: Stat", 'in file slurm.conf line 20: " Stat=UP"', "fatal: "),
    "badvalue": ("DefMemPerCPU value (abc) is not a valid number", "fatal: "),
    "badplugin": ("sched/backfil", "fatal: Failed to initialize the various schedulers"),
    "garbage": ('in file slurm.conf line 20: "garbage line here"', "fatal: "),
    "duppart": ("duplicate entry for partition main",),
    "otherhost": ("This host (controller-0/controller-0) not a valid controller",),
    "preempt": ("PreemptType and PreemptMode values incompatible", "fatal: "),
    "topo": ("cannot stat file topology.conf",),
    "gres": ("slurmdbd is required to run with TRES gres/gpu",),
    "lua": ("Unable to stat job_submit.lua", "fatal: "),
    "enforce": ("You can not have AccountingStorageEnforce set",),
    "qos": ("We have no QOS on the system",),
}


@pytest.mark.parametrize("version", ["24.11", "26.05"])
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_exactly_the_lines_that_matter_are_kept(version: str, case: str) -> None:
    text = (DATA / f"slurmctld-{version}-{case}.log").read_text()

    found = complaints_in([clean(line, DIRECTORY) for line in text.splitlines()])

    if not EXPECTED[case]:
        assert found == ()
    for part in EXPECTED[case]:
        assert any(part in line for line in found), found
    assert all(line.startswith(("error: ", "fatal: ")) for line in found)


def test_time_stamps_and_the_scratch_directory_are_not_shown() -> None:
    old = 'slurmctld: error: Parse error in file /tmp/x/slurm.conf line 3: "y"'
    new = '[2026-11-21T11:18:28.442] error: Parse error in file /tmp/x/slurm.conf line 3: "y"'

    assert clean(old, "/tmp/x") == clean(new, "/tmp/x") == 'error: Parse error in file slurm.conf line 3: "y"'


def test_a_complaint_that_is_repeated_is_told_once() -> None:
    assert complaints_in(["error: Bad SelectTypeParameter: X"] * 2) == ("error: Bad SelectTypeParameter: X",)


def test_that_the_scratch_slurmctld_powers_no_node_on_or_off_is_no_complaint() -> None:
    line = "error: power_save module disabled, NULL SuspendProgram"
    assert complaints_in([line, "error: power_save module disabled, invalid SuspendProgram x"]) == (
        "error: power_save module disabled, invalid SuspendProgram x",
    )


def test_a_group_that_comes_with_the_configuration_is_no_complaint_and_an_unknown_one_is() -> None:
    """The scratch slurmctld looks users up in the files in force, where a new group is not yet."""
    lines = [f"error: _get_group_members: Could not find configured group {name}" for name in ("vision", "visoin")]

    assert complaints_in(lines, frozenset({"ml", "vision"})) == (lines[1],)


def test_a_configuration_that_starts_without_complaint_is_taken() -> None:
    assert Verdict(starts=True, complaints=()).rejection() is None


def test_only_new_complaints_reject_a_configuration_that_starts() -> None:
    verdict = Verdict(starts=True, complaints=("error: old", "error: new"))

    assert verdict.rejection(("error: old",)) == "error: new"
    assert verdict.rejection(("error: old", "error: new")) is None


def test_one_that_does_not_start_is_rejected_even_for_an_old_complaint() -> None:
    assert Verdict(starts=False, complaints=("error: old",)).rejection(("error: old",)) == "error: old"
    assert "does not say why" in (Verdict(starts=False, complaints=()).rejection() or "")


def test_no_slurm_conf_is_said_plainly(tmp_path: Path) -> None:
    verdict = Checker(program="/nonexistent", user=None)({"cgroup.conf": ""})

    assert verdict.rejection() == "error: there is no slurm.conf in the configuration"
