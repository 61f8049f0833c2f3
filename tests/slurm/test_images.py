"""What is in the images, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.images import ROLES
from tests.rootfs import rootfs

pytestmark = pytest.mark.in_gate

JAIL_PROGRAMS = (
    "bash", "gcc", "g++", "make", "python3", "mpicc", "mpirun", "ssh", "git", "vi", "nano", "less", "curl", "rsync",
    "sudo", "ps", "ip", "apt-get", "srun", "sbatch", "squeue", "sinfo", "scontrol", "sacct",
)  # fmt: skip


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


def test_nothing_is_carried_along_that_does_not_belong_there(roots: dict[str, Path]) -> None:
    """Secrets, what Debian's packages say of plugins, and lists of packages."""
    for root in roots.values():
        for place in ("etc/munge/munge.key", "etc/slurm/plugstack.conf", "etc/slurm/plugstack.conf.d"):
            assert not (root / place).exists(), root
        assert not list(root.glob("etc/ssh/ssh_host_*")), root
        assert not [path for path in root.glob("var/lib/apt/lists/**/*") if path.is_file()], root


def test_the_jail_has_what_users_expect(roots: dict[str, Path]) -> None:
    assert [name for name in JAIL_PROGRAMS if not has_program(roots["jail"], name)] == []
