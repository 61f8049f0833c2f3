"""What is in the images, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.install import CALLED, PROGRAMS
from slurm.images import ROLES
from tests.rootfs import rootfs

pytestmark = pytest.mark.in_gate

JAIL_PROGRAMS = (
    "bash", "gcc", "g++", "make", "python3", "mpicc", "mpirun", "ssh", "git", "vi", "nano", "less", "curl", "rsync",
    "sudo", "ps", "ip", "apt-get", "srun", "sbatch", "squeue", "sinfo", "scontrol", "sacct",
)  # fmt: skip

MORE_FOLDERS = {
    "controller": ("health/watch", "health/node_tests", "elastic"),
    "worker": ("health",),
    "rest": ("dashboard",),
    "database": ("backup",),
}
"""Role -> what images/Containerfile installs in it besides its own folder and `common`."""

COMPILED = {"controller": {"await-nodes"}}
"""Programs that are not Python (images/elastic/native)."""


@pytest.fixture(scope="module")
def roots(slurm_version: str) -> dict[str, Path]:
    """The unpacked root file system of each role."""
    return {role: rootfs(role, slurm_version) for role in ROLES}


def ids(root: Path) -> dict[str, tuple[str, str]]:
    """User name -> (uid, gid)."""
    rows = [line.split(":") for line in (root / "etc/passwd").read_text().splitlines()]
    return {row[0]: (row[2], row[3]) for row in rows}


def has_program(root: Path, name: str) -> bool:
    """Whether a program is on the image's PATH; alternatives are absolute links inside the image."""
    return any(
        (root / directory / name).is_symlink() or (root / directory / name).exists()
        for directory in ("usr/bin", "usr/sbin")
    )


def test_slurm_and_munge_have_the_same_numbers_everywhere(roots: dict[str, Path]) -> None:
    found = {role: (ids(root)["slurm"], ids(root)["munge"]) for role, root in roots.items()}
    assert found == dict.fromkeys(ROLES, (("64030", "64030"), ("950", "950")))


def test_no_secret_and_no_host_key_is_in_an_image(roots: dict[str, Path]) -> None:
    for root in roots.values():
        assert not (root / "etc/munge/munge.key").exists(), root
        assert not list(root.glob("etc/ssh/ssh_host_*")), root


def test_debians_plugstack_conf_is_gone(roots: dict[str, Path]) -> None:
    for root in roots.values():
        assert not (root / "etc/slurm/plugstack.conf").exists(), root
        assert not (root / "etc/slurm/plugstack.conf.d").exists(), root


def test_package_lists_are_not_carried_along(roots: dict[str, Path]) -> None:
    for root in roots.values():
        assert not [path for path in root.glob("var/lib/apt/lists/**/*") if path.is_file()], root


def test_each_role_has_its_programs(roots: dict[str, Path]) -> None:
    for role, root in roots.items():
        directory = root / "usr/libexec/slurmstack"
        folders = ("common", *MORE_FOLDERS.get(role, ()), role)
        called = {name for folder in folders for name in CALLED.get(folder, ())}
        expected = {name for folder in folders for name in PROGRAMS.get(folder, ())}
        assert {path.name for path in directory.iterdir()} == expected | called | COMPILED.get(role, set()), role
        assert {(directory / name).resolve().name for name in called} <= {"around-job"}, role


def test_the_jail_has_what_users_expect(roots: dict[str, Path]) -> None:
    assert [name for name in JAIL_PROGRAMS if not has_program(roots["jail"], name)] == []
