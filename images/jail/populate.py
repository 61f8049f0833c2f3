"""populate: fills the shared volume, or a named root in it, with a root file system, once.

The image's own root file system is copied. The marker is written last, so that a half-populated jail is never taken for
a whole one; a jail that is there is never touched, whatever version it has.

And roots list|diff|remove, with the same rights, for `slurmstack jail`: answers are JSON in the last line. Users write
in roots meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from images.common import jail_roots
from images.common.files import write_atomically
from images.common.jail_roots import Filled
from images.common.jail_view import held, homes_directory
from images.common.mountinfo import WrongFilesystemError, expect_volume, mount_points
from images.common.process import CannotGoOnError, RefusedError, program, required_env
from images.jail.accounts import OF_USERS, AccountError, is_name
from images.jail.carry import SECONDS, Carrying
from images.jail.changes import INTO, compare, read_manifest, shown, write_manifest
from images.jail.image import fill
from images.jail.users import numbers_of

JAIL: Final = Path("/jail")
STATE: Final = ".slurmstack"
MARKER: Final = f"{STATE}/populated"
IN_PROGRESS: Final = f"{STATE}/populating"

OURS_IN_AN_EMPTY_VOLUME: Final = frozenset({"lost+found", STATE, jail_roots.ROOTS})

_REMOVING: Final = ".removing-"
"""In ROOTS: what is left of roots that are being removed. No root can be called so."""

SIZE_SECONDS: Final = "30"
"""For the size of one root; users can make any number of files."""

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A root that is to be there."""

    volume: Path
    name: str = ""
    """Empty: the volume itself."""
    version: str
    """Tag of the image."""
    release: str = ""
    """Of Slurm in it, if somebody says so."""
    carried: tuple[str, ...] = ()
    """Paths that it gets from another root."""
    carried_from: str = ""

    @property
    def root(self) -> Path:
        """Where it is."""
        return jail_roots.root_of(self.volume, self.name)


def main() -> int:
    """Entry point."""
    with program("populate") as log:
        try:
            expect_volume(JAIL)
        except WrongFilesystemError as error:
            raise RefusedError(f"nothing was written: {error}") from error
        jail_roots.refuse_other_homes(JAIL, apart=homes_directory() is not None)
        version, name = required_env("JAIL_VERSION"), os.environ.get("JAIL_ROOT", "")
        if not name:
            return populate(Path("/"), JAIL, version, log, mount_points())
        carried = tuple(json.loads(os.environ.get("CARRY", "[]")))
        source, release = os.environ.get("CARRY_FROM", ""), os.environ.get("SLURM_RELEASE", "")
        wanted = Wanted(volume=JAIL, name=name, version=version, release=release, carried=carried, carried_from=source)
        return populate_root(Path("/"), wanted, log, mount_points())


def populate(source: Path, jail: Path, version: str, log: Log, mounted: frozenset[str]) -> int:
    """Fill the volume itself from `source`; returns the exit code. Raises RefusedError."""
    wanted = Wanted(volume=jail, version=version)
    if _is_there(wanted, log):
        return 0
    # Named roots that were here first: kubelet has made what they share, and users have written there.
    ours = OURS_IN_AN_EMPTY_VOLUME | (set(jail_roots.SHARED) if jail_roots.names(jail) else set())
    foreign = sorted({entry.name for entry in jail.iterdir()} - ours)
    if foreign and not (jail / IN_PROGRESS).exists():
        raise RefusedError(
            f"the volume has {', '.join(foreign[:5])} and {max(0, len(foreign) - 5)} more in it, not from us: "
            "refusing to write to it. Use an empty volume, or empty this one by hand"
        )
    if foreign:
        log("going on where an earlier run was interrupted")
    return _fill(source, wanted, log, mounted)


def populate_root(source: Path, wanted: Wanted, log: Log, mounted: frozenset[str]) -> int:
    """Fill a root beside the others from `source`; returns the exit code. Raises RefusedError."""
    if not jail_roots.is_name(wanted.name):
        raise RefusedError(f"{wanted.name!r} is no name for a root")
    if _is_there(wanted, log):
        return 0
    if wanted.carried and jail_roots.filled(wanted.volume, wanted.carried_from) is None:
        which = jail_roots.called(wanted.carried_from)
        raise RefusedError(
            f"jail.carry_from: {which} is not whole, so nothing can be carried from it; name another one"
        )
    _go_on_or_begin(wanted, log)
    _make_shared(wanted.volume)
    return _fill(source, wanted, log, mounted)


def _is_there(wanted: Wanted, log: Log) -> bool:
    """Whether the root is whole already. RefusedError: with another release, whose daemons do not fit its plugins."""
    there, which = jail_roots.filled(wanted.volume, wanted.name), jail_roots.called(wanted.name)
    if there is None:
        return False
    if wanted.release and there.release and wanted.release != there.release:
        raise RefusedError(
            f"jail.root: {which} was filled with Slurm {there.release}, and slurm.version is {wanted.release}; set "
            "another jail.root, which is filled anew"
        )
    log(f"{which} is populated already, with version {there.version}; nothing is changed")
    # Where root in it does not come: without its own marker it would be filled again, through links that are there.
    jail_roots.make_directory_of(wanted.volume, wanted.name)
    jail_roots.write_filled(wanted.volume, wanted.name, there)
    _mark(wanted.root, there.version)
    return True


def _go_on_or_begin(wanted: Wanted, log: Log) -> None:
    jail_roots.make_directory_of(wanted.volume, wanted.name)
    begun = wanted.root / IN_PROGRESS
    if begun.exists() and begun.read_text(encoding="utf-8").strip() == wanted.version:
        log("going on where an earlier run was interrupted")
    elif wanted.root.exists():
        # Another image's, or kubelet's: pods that wait for the root have mounted it, so it stays the same directory.
        empty_root(wanted.volume, wanted.name, log)
    wanted.root.mkdir(mode=0o755, exist_ok=True)


def _make_shared(volume: Path) -> None:
    """What all roots share. Kubelet, which may have been here first, gives directories the mode of the volume."""
    is_new = not jail_roots.whole(volume)
    for name in jail_roots.SHARED:
        path = volume / name
        if not path.is_symlink():
            path.mkdir(mode=0o755, exist_ok=True)
            if is_new and path.stat().st_uid == 0:
                path.chmod(0o755)


def _fill(source: Path, wanted: Wanted, log: Log, mounted: frozenset[str]) -> int:
    started, root, version = time.monotonic(), wanted.root, wanted.version
    jail_roots.note_homes(wanted.volume, apart=homes_directory() is not None)
    root.chmod(0o755)  # sshd insists, for a ChrootDirectory
    (root / STATE).mkdir(mode=0o755, exist_ok=True)
    write_atomically(root / IN_PROGRESS, version + "\n")
    code = fill(source, root, log, mounted)
    if code != 0:
        return code
    manifest = jail_roots.make_directory_of(wanted.volume, wanted.name) / jail_roots.MANIFEST
    if not (wanted.carried and manifest.exists()):  # what an interrupted run has carried is not the image's
        write_manifest(root, manifest)
    left_out, ended_early = _carry(wanted, manifest, log) if wanted.carried else (0, "")
    os.sync()  # everything else is on the disk before somebody is told that it is there
    release = wanted.release or jail_roots.release_of(version)
    known = Filled(
        version=version,
        release=release,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        carried_from=wanted.carried_from if wanted.carried else None,
        left_out=left_out,
        ended_early=ended_early,
    )
    jail_roots.write_filled(wanted.volume, wanted.name, known)
    _mark(root, version)
    which = f"the root {wanted.name!r}" if wanted.name else "the jail"
    log(f"{which} is populated with version {version} after {time.monotonic() - started:.1f} s")
    return 0


def _carry(wanted: Wanted, manifest: Path, log: Log) -> tuple[int, str]:
    """Copy what the stack file names from another root.

    Returns how many files were left out, and the path at which the time was over.
    """
    stage = manifest.with_name("carrying")
    stage.mkdir(mode=0o700, exist_ok=True)
    was = read_manifest(jail_roots.directory_of(wanted.volume, wanted.carried_from) / jail_roots.MANIFEST)
    if was is None:
        log(f"nobody knows what {jail_roots.called(wanted.carried_from)} was at first: files of the new image win")
    until = time.monotonic() + SECONDS
    descriptor = os.open(stage, INTO)
    try:
        carrying = Carrying(was=was, new=read_manifest(manifest) or {}, stage=descriptor, log=log, until=until)
        carrying.run(jail_roots.root_of(wanted.volume, wanted.carried_from), wanted.root, wanted.carried)
    finally:
        os.close(descriptor)
    (stage / "carried").unlink(missing_ok=True)
    stage.rmdir()
    return carrying.left_out, carrying.ended_early


def _mark(root: Path, version: str) -> None:
    """Last of all: what pods wait for. Whoever is root in a root that is whole already can have put links there."""
    with held(root, STATE, make=True) as descriptor:
        state = Path(f"/proc/self/fd/{descriptor}")
        marker = state / Path(MARKER).name
        if not os.path.lexists(marker):
            content = {"version": version, "time": datetime.now(UTC).isoformat(timespec="seconds")}
            write_atomically(marker, json.dumps(content) + "\n")
        (state / Path(IN_PROGRESS).name).unlink(missing_ok=True)


def empty_root(volume: Path, name: str, log: Log) -> None:
    """Empty a root in which nobody has been yet. The directory stays the same: pods may wait with it mounted."""
    (jail_roots.directory_of(volume, name) / jail_roots.MANIFEST).unlink(missing_ok=True)
    _empty(jail_roots.root_of(volume, name), log)


def remove(volume: Path, name: str, log: Log) -> None:
    """Remove a root for good. One that was interrupted is gone on with. Raises CannotGoOnError."""
    if not jail_roots.is_name(name):
        raise RefusedError(f"{name!r} is no name of a root")
    roots = volume / jail_roots.ROOTS
    there = jail_roots.directory_of(volume, name)
    if there.is_dir() and not there.is_symlink():
        # Out of everybody's reach at once: whoever could still come by its name would go on writing in it.
        there.rename(roots / f"{_REMOVING}{name}.{time.time_ns()}")
    elif not _left(roots):
        raise RefusedError(f"there is no root {name!r}")
    for trash in _left(roots):
        # A full volume has room for the numbers then. The files that have them go last: it may be interrupted anywhere.
        last = [word for of in ("etc", STATE) for word in ("!", "-path", f"{trash}/root/{of}*")]
        _empty(trash, log, "-mindepth", "2", *last)
        _keep_numbers(volume, trash / "root", log)
        _empty(trash, log)
        trash.rmdir()
    log(f"the root {name!r} is removed")


def _keep_numbers(volume: Path, root: Path, log: Log) -> None:
    """Homes of those who had an account in it stay, with their numbers."""
    try:
        numbers = numbers_of(root)
    except (CannotGoOnError, AccountError, OSError) as error:
        log(f"its accounts cannot be read, so numbers that only it knew may be given again: {error}")
        return
    kept = {
        kind: {number: name if is_name(name) else "?" for number, name in found.items() if number in OF_USERS}
        for kind, found in numbers.items()
    }
    try:
        jail_roots.keep_numbers(volume, **kept)
    except OSError as error:
        raise CannotGoOnError(
            f"its users' numbers cannot be kept ({error.strerror}); the same command goes on"
        ) from error


def _left(roots: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(entry for entry in roots.iterdir() if entry.name.startswith(_REMOVING))
    return []


def _empty(trash: Path, log: Log, *which: str) -> None:
    """All in a directory goes, or what is chosen. find(1) follows no link, however fast names change, at any depth."""
    log(f"removing what is in {trash.name}")
    find = ["find", str(trash), "-xdev", *(which or ("-mindepth", "1")), "-delete"]
    done = subprocess.run(
        find, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        why = done.stderr.partition("\n")[0]
        raise CannotGoOnError(f"not all could be removed ({why}); the same command goes on")


def list_roots(volume: Path, *, sizes: bool) -> list[dict[str, Any]]:
    """All roots; the first one has no name."""
    there = [*([""] if jail_roots.filled(volume, "") else []), *jail_roots.names(volume)]
    return [_root_entry(volume, name, sizes=sizes) for name in there]


def _root_entry(volume: Path, name: str, *, sizes: bool) -> dict[str, Any]:
    known = jail_roots.filled(volume, name)
    found = asdict(known or jail_roots.Filled(version="", release="", time=""))
    found = {"name": name, "whole": known is not None, "filled": found.pop("time"), **found}
    return found | (_size(volume, name) if sizes else {})


def _size(volume: Path, name: str) -> dict[str, Any]:
    """Bytes on the disk, without what all roots share; `more`: nobody knows, as the time was over."""
    root = jail_roots.root_of(volume, name)
    others = [f"--exclude={root / other}" for other in (*jail_roots.SHARED, jail_roots.ROOTS) if not name]
    argv = ["timeout", SIZE_SECONDS, "du", "--summarize", "--one-file-system", "--block-size=1", *others, str(root)]
    du = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return {"bytes": int(du.stdout.partition("\t")[0] or 0), "more": not du.stdout}


def diff(volume: Path, name: str) -> dict[str, Any]:
    """What users have changed in a root since it was filled. Raises RefusedError."""
    if jail_roots.filled(volume, name) is None:
        raise RefusedError(f"there is no {jail_roots.called(name).removeprefix('the ')} that is whole")
    manifest = read_manifest(jail_roots.directory_of(volume, name) / jail_roots.MANIFEST)
    if manifest is None:
        raise RefusedError(
            f"{jail_roots.called(name)} was filled by a version of slurmstack that kept no list of its files"
        )
    found = compare(jail_roots.root_of(volume, name), manifest)
    found.added = {shown(path): count for path, count in found.added.items()}
    found.changed, found.removed = ([shown(path) for path in paths] for paths in (found.changed, found.removed))
    return asdict(found)


def roots() -> None:
    """Entry point of `roots`. `ROOT`: the root that is meant; empty: the first one."""
    with program("roots") as log:
        command, name = sys.argv[1] if len(sys.argv) > 1 else "", os.environ.get("ROOT", "")
        expect_volume(JAIL)
        if command == "list":
            print(json.dumps(list_roots(JAIL, sizes="SIZES" in os.environ)), flush=True)
        elif command == "diff":
            print(json.dumps(diff(JAIL, name)), flush=True)
        elif command == "remove":
            remove(JAIL, name, log)
        else:
            raise CannotGoOnError(f"{command!r} is no command: list, diff, remove")
