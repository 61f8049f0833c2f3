"""What is mounted, and whether a volume is the file system that it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.mountinfo import Mounted, WrongFilesystemError, expect_filesystem, mount_points, read_mounts

POD = """\
500 400 0:40 / / rw,relatime master:1 - overlay overlay rw
501 500 0:41 / /proc rw - proc proc rw
502 500 0:50 /slurm/jail /jail rw,relatime - virtiofs jail rw
503 502 0:41 / /jail/proc rw - proc proc rw
504 500 8:1 /mnt/slurmstack/mount-data /mounts/data rw shared:7 master:2 - ext4 /dev/vda1 rw
505 500 8:1 /x /mnt/a\\040b rw - ext4 /dev/vda1 rw
"""


@pytest.fixture
def mountinfo(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(POD)
    return path


def test_points_and_types_are_read(mountinfo: Path) -> None:
    rw = frozenset({"rw"})
    assert read_mounts(mountinfo)[2] == Mounted(point="/jail", filesystem="virtiofs", options=rw)
    assert read_mounts(mountinfo)[4] == Mounted(point="/mounts/data", filesystem="ext4", options=rw)


def test_mount_points_with_spaces_are_read(mountinfo: Path) -> None:
    assert "/mnt/a b" in mount_points(mountinfo)


def test_a_volume_that_the_machine_did_not_mount_is_refused(mountinfo: Path) -> None:
    for directory in ("/jail", "/jail/home/alice"):
        expect_filesystem(Path(directory), "virtiofs", mountinfo)
    for directory, found in (("/mounts/data", "ext4"), ("/jailed", "overlay"), ("/jail/proc/1", "proc")):
        with pytest.raises(WrongFilesystemError, match=f"{directory} is on {found} instead of virtiofs"):
            expect_filesystem(Path(directory), "virtiofs", mountinfo)


def test_the_last_of_several_mounts_at_one_place_counts(mountinfo: Path) -> None:
    mountinfo.write_text(POD + "506 502 8:1 / /jail rw - ext4 /dev/vda1 rw\n")
    with pytest.raises(WrongFilesystemError, match="on ext4"):
        expect_filesystem(Path("/jail"), "virtiofs", mountinfo)
