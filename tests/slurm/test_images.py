"""What is in the images, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.install import CALLED, PROGRAMS, SCRIPTS
from images.common.jail_view import LOGIN_BINDS, WORKER_BINDS
from local.images import rootfs
from local.report import PlainReport
from slurm.images import ROLES
from tests.slurm.pod import MORE_FOLDERS

JAIL_PROGRAMS = (
    "bash", "gcc", "g++", "make", "python3", "mpicc", "mpirun", "ssh", "git", "vi", "nano", "less", "curl", "rsync",
    "sudo", "ps", "ip", "apt-get", "srun", "sbatch", "squeue", "sinfo", "scontrol", "sacct",
)  # fmt: skip

COMPILED = {"controller": {"await-nodes"}}
"""Programs that are not Python (images/elastic/native)."""


@pytest.fixture(scope="module", params=ROLES)
def root(request: pytest.FixtureRequest, slurm_version: str) -> Path:
    """The unpacked root file system of each role."""
    return rootfs(request.param, slurm_version, PlainReport())


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


def test_slurm_and_munge_have_the_same_numbers_everywhere(root: Path) -> None:
    assert ids(root)["slurm"] == ("64030", "64030")
    assert ids(root)["munge"] == ("950", "950")


def test_no_secret_and_no_host_key_is_in_an_image(root: Path) -> None:
    assert not (root / "etc/munge/munge.key").exists()
    assert not list((root / "etc/ssh").glob("ssh_host_*")) if (root / "etc/ssh").exists() else True


def test_debians_plugstack_conf_is_gone(root: Path) -> None:
    assert not (root / "etc/slurm/plugstack.conf").exists()
    assert not (root / "etc/slurm/plugstack.conf.d").exists()


def test_package_lists_are_not_carried_along(root: Path) -> None:
    lists = root / "var/lib/apt/lists"
    assert not [path for path in lists.rglob("*") if path.is_file()] if lists.exists() else True


def test_every_image_starts_munged(root: Path) -> None:
    assert (root / "usr/libexec/slurmstack/munged").stat().st_mode & 0o111


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_its_programs(role: str, slurm_version: str) -> None:
    directory = rootfs(role, slurm_version, PlainReport()) / "usr/libexec/slurmstack"

    folders = ("common", *MORE_FOLDERS.get(role, ()), role)
    expected = {
        name
        for folder in folders
        for name in (*PROGRAMS.get(folder, ()), *CALLED.get(folder, ()), *SCRIPTS.get(folder, ()))
    }
    assert {path.name for path in directory.iterdir()} == expected | COMPILED.get(role, set())
    assert all(
        (directory / name).resolve().name == "health-call" for folder in folders for name in CALLED.get(folder, ())
    )


@pytest.mark.parametrize("program", JAIL_PROGRAMS)
def test_the_jail_has_what_users_expect(program: str, slurm_version: str) -> None:
    assert has_program(rootfs("jail", slurm_version, PlainReport()), program)


def test_the_jail_has_a_target_for_every_bind(slurm_version: str) -> None:
    jail = rootfs("jail", slurm_version, PlainReport())

    binds = {*WORKER_BINDS, *LOGIN_BINDS}
    for bind in binds:
        if any(bind.path.startswith(f"{other.path}/") and not other.recursive for other in binds):
            continue  # in what the pod itself brings
        assert (jail / bind.path.lstrip("/")).exists(), bind.path


@pytest.mark.parametrize("role", ["worker", "login", "jail"])
def test_the_plugin_is_at_the_same_path_wherever_slurm_reads_plugstack(role: str, slurm_version: str) -> None:
    assert (rootfs(role, slurm_version, PlainReport()) / "usr/lib/slurmstack/jail.so").is_file()


def test_sudo_keeps_its_permission(slurm_version: str) -> None:
    assert (rootfs("jail", slurm_version, PlainReport()) / "usr/bin/sudo").stat().st_mode & 0o4000
