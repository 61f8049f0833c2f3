"""A worker with real processes and mounts: binds, scratch, namespaces for containers in jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common.mountinfo import expect_done
from images.common.process import CannotGoOnError
from images.worker import namespaces
from images.worker.namespaces import make
from images.worker.scratch import OF_THE_MACHINE, give_back, prepare
from tests.fakes import node_conf
from tests.programs.images.mounts import run_apart

REAL = """
import os, sys
from pathlib import Path
from images.common.mountinfo import attach
here = Path(sys.argv[1])
for name in ("pod/inner", "jail/data", "elsewhere"):
    (here / name).mkdir(parents=True)
os.system(f"mount -t tmpfs inner {here}/pod/inner")
(here / "pod/inner/deep").touch()
target = os.open(here / "jail/data", os.O_PATH)
(here / "jail/data").rename(here / "jail/moved")
(here / "jail/data").symlink_to(here / "elsewhere")
attach(here / "pod", target, recursive=True, read_only=True)
assert (here / "jail/moved/inner/deep").exists() and not list((here / "elsewhere").iterdir())
try:
    (here / "jail/moved/new").touch()
except OSError as error:
    print(error.strerror)
(here / "pod/new").touch()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_what_is_held_open_is_bound_over_wherever_its_path_leads_by_now(tmp_path: Path) -> None:
    done = run_apart(REAL, tmp_path)
    assert (done.returncode, done.stdout) == (0, "Read-only file system\n"), done.stderr


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


MOUNTED = """
import os, sys
from pathlib import Path
from images.worker.scratch import OF_THE_MACHINE, give_back
here = Path(sys.argv[1])
for name in ("scratch/mps", "scratch/deep/bound", "scratch/jobs", "machine"):
    (here / name).mkdir(parents=True)
os.system(f"mount -t tmpfs mps {here}/scratch/mps && mount --bind {here}/machine {here}/scratch/deep/bound")
for name in ("scratch/mps", "machine", "scratch/jobs"):
    (here / name / "file").touch()
give_back(OF_THE_MACHINE, print, here / "scratch")
print(sorted(str(path.relative_to(here)) for path in here.rglob("file")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_what_the_machine_has_mounted_there_is_not_emptied(tmp_path: Path) -> None:
    done = run_apart(MOUNTED, tmp_path)
    said, left = done.stdout.splitlines()
    assert left == "['machine/file', 'scratch/deep/bound/file', 'scratch/mps/file']", done.stderr
    assert "files and" in said


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
for name in ("disk", "disk/jobs", "mount"):
    (here / name).mkdir()
os.system(f"mount -t tmpfs -o noexec disk {here}/disk")
(here / "disk/jobs").mkdir()
forbid_programs_of_others("host_path", here / "disk")
attach(here / "disk/jobs", os.open(here / "mount", os.O_PATH))
for line in Path("/proc/self/mountinfo").read_text().splitlines():
    if str(here) in line:
        print(sorted({"nosuid", "nodev", "noexec"} & set(line.split()[5].split(","))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_no_program_on_it_has_its_owner_s_rights_also_where_it_is_shown_to_a_job(tmp_path: Path) -> None:
    done = run_apart(STRICT, tmp_path)
    assert done.stdout.splitlines() == ["['nodev', 'noexec', 'nosuid']"] * 2, done.stderr


OWNER = (10001, 10002)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the user's process is asked for, in place of what takes rights."""
    file = tmp_path / "notes"
    for name in ("leave_for", "become", "own_namespaces"):
        monkeypatch.setattr(namespaces, name, lambda *_, name=name: file.open("a").write(f"{name}\n"))
    monkeypatch.setattr(namespaces, "_write_maps", lambda *_: None)
    return file


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_nothing_of_the_helper_s_is_open_in_the_user_s_process(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/etc/passwd").open() as file:
        os.set_inheritable(file.fileno(), True)
        numbers = [0, 1, 2, file.fileno()]
        is_open = lambda number: Path(f"/proc/self/fd/{number}").exists()  # noqa: E731
        monkeypatch.setattr(namespaces, "leave_for", lambda _: notes.write_text(f"{[*filter(is_open, numbers)]}"))
        for number in make(Path("/job-mount"), OWNER):
            os.close(number)
    assert notes.read_text().startswith("[]")


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (lambda *_: 1 / 0, "was ended"),
        (lambda *_: os.kill(os.getpid(), signal.SIGKILL), "was ended"),
        (lambda *_: os.kill(os.getpid(), signal.SIGSTOP), r"did not do so within 0\.3 s"),
        (lambda *_: expect_done(-1, "become"), "cannot become"),
    ],
    ids=["breaks", "is ended by its user", "is stopped by its user", "may not"],
)
@pytest.mark.usefixtures("notes")
def test_a_process_that_does_not_make_them_is_the_last_and_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, does: Callable[..., object], told: str
) -> None:
    monkeypatch.setattr(namespaces, "become", does)
    monkeypatch.setattr(namespaces, "own_namespaces", lambda: pytest.fail("it goes on"))
    monkeypatch.setattr(namespaces, "PATIENCE", 0.3)
    before = children()
    with pytest.raises(OSError, match=told):
        make(Path("/job-mount"), OWNER)
    assert children() == before, "and is ended"
