"""A worker's scratch when slurmd starts and when the pod leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.process import CannotGoOnError
from images.worker.scratch import OF_THE_MACHINE, give_back, prepare
from tests.fakes import node_conf
from tests.programs.images.mounts import run_apart

CONF = "CPUs=2 RealMemory=640 TmpDisk=1000 Feature=a"


def prepared(directory: Path, has: int = 1000) -> str:
    return prepare(OF_THE_MACHINE, node_conf.conf(CONF), print, directory=directory, size=lambda _: has).text


def leave_things(directory: Path) -> Path:
    """What a crashed worker leaves, with a file elsewhere that a link leads to."""
    elsewhere = directory.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (directory / "jobs/7/deep/er").mkdir(parents=True)
    (directory / "jobs/7/deep/er/file").write_text("left")
    (directory / "jobs/7/link").symlink_to(elsewhere)
    (directory / "file").write_text("left")
    (directory / "link").symlink_to(elsewhere)
    (directory / ".left-0").mkdir()
    (directory / "lost+found").mkdir()
    return elsewhere / "file"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    directory = tmp_path / "volume"
    directory.mkdir()
    return directory


@pytest.mark.parametrize(("has", "told"), [(5000, 1000), (937, 937)])
def test_slurm_may_count_on_what_there_is_and_no_more_than_was_said(volume: Path, has: int, told: int) -> None:
    assert prepared(volume, has) == f"CPUs=2 RealMemory=640 TmpDisk={told} Feature=a"


def test_a_disk_that_is_not_mounted_keeps_the_worker_from_starting(volume: Path) -> None:
    leave_things(volume)
    with pytest.raises(CannotGoOnError, match=r"has 899 MiB on this machine, and scratch\.size says 1000 MiB"):
        prepared(volume, 899)
    assert (volume / "jobs").exists(), "nobody knows whose disk it is"


def test_what_is_left_goes_before_slurmd_starts_and_nothing_that_a_link_leads_to(volume: Path) -> None:
    kept = leave_things(volume)
    prepared(volume)
    assert [path.name for path in volume.iterdir()] == ["lost+found"]
    assert kept.exists()


def test_a_pod_that_leaves_gives_the_machine_its_room_back(volume: Path) -> None:
    leave_things(volume)
    give_back("storage_class", print, volume)
    assert (volume / "jobs").exists(), "that volume goes with the pod"
    give_back(OF_THE_MACHINE, print, volume)
    assert [path.name for path in volume.iterdir()] == ["lost+found"]


STRICT = """
import os, sys
from collections.abc import Sequence
from pathlib import Path
from images.common.mountinfo import attach
from images.worker.scratch import forbid_programs_of_others
here = Path(sys.argv[1])
for name in ("disk", "disk/jobs", "cell"):
    (here / name).mkdir()
os.system(f"mount -t tmpfs -o noexec disk {here}/disk")
(here / "disk/jobs").mkdir()
forbid_programs_of_others("host_path", here / "disk")
attach(here / "disk/jobs", os.open(here / "cell", os.O_PATH))
for line in Path("/proc/self/mountinfo").read_text().splitlines():
    if str(here) in line:
        print(sorted({"nosuid", "nodev", "noexec"} & set(line.split()[5].split(","))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_no_program_on_it_has_its_owner_s_rights_also_where_it_is_shown_to_a_job(tmp_path: Path) -> None:
    done = run_apart(STRICT, tmp_path)
    assert done.stdout.splitlines() == ["['nodev', 'noexec', 'nosuid']"] * 2, done.stderr
