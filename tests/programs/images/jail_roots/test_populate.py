"""Filling the jail: whole or not at all, never over something that is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.process import RefusedError
from images.jail import image as filling
from images.jail import populate as populate_module
from images.jail.image import NO_SPACE
from images.jail.populate import MARKER, populate
from tests.programs.images.mounts import run_apart

FULL = """
import os, sys
from pathlib import Path
from images.jail.populate import MARKER, populate
source, jail = map(Path, sys.argv[1:])
os.system(f"mount -t tmpfs -o size=1m none {jail}")
said = []
code = populate(source, jail, "1", said.append, frozenset({"/"}))
print(code, [*jail.glob(MARKER)], any("the volume is full" in line for line in said))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name in ("bin", "etc", "proc/1", "dev", "tmp", "run/munge", "volumes/mounted"):
        (root / name).mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    (root / "bin/tool").chmod(0o4755)
    (root / "bin/tool-2").hardlink_to(root / "bin/tool")
    (root / "bin/link").symlink_to("tool")
    (root / "etc/hosts").write_text("10.0.0.1 pod\n")
    (root / "proc/1/status").write_text("x")
    (root / "volumes/mounted/data").write_text("x" * 100)
    os.utime(root / "bin", (1_000_000, 1_000_000))
    return root


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    path = tmp_path / "jail"
    path.mkdir()
    return path


def fill(source: Path, jail: Path, version: str = "1") -> tuple[int, list[str]]:
    log: list[str] = []
    mounted = frozenset({"/", "/etc/hosts", "/volumes/mounted"})
    return populate(source, jail, version, log.append, mounted), log


def test_mounts_and_processes_of_the_pod_are_not_copied_but_can_be_bound(source: Path, jail: Path) -> None:
    fill(source, jail)

    assert list((jail / "proc").iterdir()) == []
    assert list((jail / "volumes/mounted").iterdir()) == []
    assert (jail / "etc/hosts").read_text() == ""
    for target in ("run/munge", "run/slurm", "var/spool/slurmd", "sys", "dev", "tmp"):
        assert (jail / target).is_dir(), target
    assert (jail / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_a_jail_that_is_there_is_never_touched(source: Path, jail: Path) -> None:
    fill(source, jail, "1")
    (jail / "bin/tool").write_text("changed by an administrator")

    code, log = fill(source, jail, "2")

    assert code == 0
    assert "version 1" in log[0]
    assert (jail / "bin/tool").read_text() == "changed by an administrator"


def test_a_volume_with_somebody_elses_files_is_refused(source: Path, jail: Path) -> None:
    (jail / "thesis.tex").write_text("years of work")

    with pytest.raises(RefusedError, match=r"thesis\.tex"):
        fill(source, jail)

    assert [path.name for path in jail.iterdir()] == ["thesis.tex"]


def test_an_interrupted_run_leaves_no_marker_and_the_next_one_finishes(
    source: Path, jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(filling, "make_mount_targets", killed)
        with pytest.raises(Killed):
            fill(source, jail)
    assert not (jail / MARKER).exists()
    (jail / "bin/tool").write_text("half")

    code, log = fill(source, jail)

    assert code == 0
    assert any("interrupted" in line for line in log)
    assert (jail / "bin/tool").read_text() == "#!/bin/sh\n"
    assert (jail / MARKER).exists()


def test_all_of_the_image_is_copied_as_it_is(source: Path, jail: Path) -> None:
    for name in ("usr/lib/a/b", "usr/share/doc", "usr/bin"):
        (source / name).mkdir(parents=True)
    (source / "usr/lib/a/b/file").write_text("deep")
    (source / "lib").symlink_to("usr/lib")
    (source / "usr/lib").chmod(0o751)
    fill(source, jail)

    assert (jail / "bin/tool").stat().st_mode & 0o7777 == 0o4755
    assert (jail / "bin/tool").stat().st_ino == (jail / "bin/tool-2").stat().st_ino
    assert (jail / "bin").stat().st_mtime == 1_000_000
    assert (jail / "bin/link").readlink() == Path("tool")
    assert (jail / "lib/a/b/file").read_text() == "deep"
    assert (jail / "usr/lib").stat().st_mode & 0o7777 == 0o751


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_full_volume_is_said_plainly_and_no_marker_is_written(source: Path, jail: Path) -> None:
    (source / "bin/large").write_bytes(b"x" * 2**21)
    done = run_apart(FULL, source, jail)
    assert done.stdout.splitlines()[-1] == f"{NO_SPACE} [] True", done.stdout + done.stderr


def test_the_machines_own_disk_is_never_taken_for_the_shared_file_system(
    jail: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(populate_module, "JAIL", jail)
    monkeypatch.setattr(populate_module, "populate", lambda *_: pytest.fail("the jail is filled"))
    monkeypatch.setenv("EXPECT_FILESYSTEM", "virtiofs")
    monkeypatch.setenv("JAIL_VERSION", "1")

    with pytest.raises(SystemExit, match=str(RefusedError.status)):
        populate_module.main()

    assert "instead of virtiofs" in capsys.readouterr().out
    assert list(jail.iterdir()) == []
