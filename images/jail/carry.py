"""Copying paths of one root into a new one, while users write there.

Whoever may write below such a path must not keep the new root from being filled, nor get more than he has. So each file
is opened once, never through a link, and all that is said of it, owner, mode and content, is that of what is open. What
cannot be carried is left out and named, and there is an end to it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.jail.changes import INTO, EnoughError, Entry, entry_of, shown

SECONDS: Final = 6 * 3600.0
"""For all that is carried."""

DEEPEST: Final = 128
"""Levels of directories that are gone into, each held open: packages of Node.js, the deepest known, have about 40."""

NAMED: Final = 50
"""Files that are left out, in the log; the others are counted."""

_KEPT_FREE: Final = 20
"""The part of the volume that stays free: one of so many."""

_FILES_FREE: Final = 10_000
_CHUNK: Final = 4 * 2**20
_REPORT_SECONDS: Final = 5.0
_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ACLS: Final = ("system.posix_acl_access", "system.posix_acl_default")
_SPECIAL: Final = stat.S_ISUID | stat.S_ISGID


def _expect_time(until: float, path: str) -> None:
    """Raise EnoughError, which says where, after `until`, of time.monotonic()."""
    if time.monotonic() > until:
        raise EnoughError(shown(path))


class LeftOutError(Exception):
    """Why one file is not carried."""


@dataclass
class Carrying:
    """One pass."""

    was: Mapping[str, Entry] | None
    """What the old root was when it had been filled; None: nobody knows."""
    new: Mapping[str, Entry]
    """What the new image has brought."""
    stage: int
    """A directory beside the new root, on the same file system: a file appears whole."""
    log: Callable[[str], None]
    until: float
    """Of time.monotonic()."""
    carried: int = 0
    kept: int = 0
    """Files of the new image that are in both, where nobody knows whether users changed the old ones."""
    left_out: int = 0
    ended_early: str = ""
    """The path at which the time was over."""
    top: int = -1
    _linked: dict[tuple[int, int], str] = field(default_factory=dict)
    _due: float = 0.0

    def run(self, source: Path, target: Path, paths: Sequence[str]) -> None:
        """Carry these paths."""
        old = os.open(source, INTO)
        self.top = os.open(target, INTO)
        try:
            for path in paths:
                self._path(old, path)
        except EnoughError as error:
            self.ended_early = str(error)
            self.log(f"carrying ended early, and what comes after is left out: no more time, at {error}")
        finally:
            os.close(old)
            os.close(self.top)
        kept = f", {self.kept} are those of the new image" if self.kept else ""
        left = f", {self.left_out} were left out" if self.left_out else ""
        self.log(f"{self.carried} files and directories were carried{kept}{left}")

    def _path(self, old: int, path: str) -> None:
        """One of the paths, with the directories above it as they are in the old root."""
        *above, last = path.strip("/").split("/")
        with self._leaving_out(path):
            opened = [(os.dup(old), os.dup(self.top))]
            try:
                here = ""
                for name in above:
                    here = f"{here}/{name}"
                    opened.append(self._into(*opened[-1], name, here))
                self._entry(*opened[-1], last, path)
            finally:
                for pair in opened:
                    for descriptor in pair:
                        os.close(descriptor)

    def _into(self, old: int, new: int, name: str, path: str) -> tuple[int, int]:
        try:
            inner = os.open(name, INTO, dir_fd=old)
        except FileNotFoundError:
            raise LeftOutError("there is no such path") from None
        except OSError as error:
            raise LeftOutError(f"{shown(path)} is no directory, or a link ({error.strerror})") from error
        try:
            below = self._made(new, name)
            if path not in self.new:
                self._attributes(inner, below, path)
        except BaseException:
            os.close(inner)
            raise
        return inner, below

    def _entry(self, old: int, new: int, name: str, path: str) -> None:
        _expect_time(self.until, path)
        self._log_progress(path)
        with self._leaving_out(path):
            probe = os.open(name, _PATH, dir_fd=old)
            try:
                status = os.fstat(probe)
                if stat.S_ISDIR(status.st_mode):
                    self._directory((probe, self._is_changed(old, name, path, status)), (new, name), path)
                elif not self._is_images_own(old, name, path, status):
                    self._one(probe, status, new, name, path)
            finally:
                os.close(probe)

    def _is_images_own(self, old: int, name: str, path: str, status: os.stat_result) -> bool:
        """Whether a file came with the old image, so that the new one has its own."""
        if self.was is not None:
            return self.was.get(path) == entry_of(old, name, status)
        if path in self.new:
            self.kept += 1
            return True
        return False

    def _is_changed(self, old: int, name: str, path: str, status: os.stat_result) -> bool:
        """Whether the new image has a directory of which users have changed the old one's owner or mode."""
        before = (self.was or {}).get(path)
        return before is not None and before != entry_of(old, name, status)

    def _directory(self, old_one: tuple[int, bool], new_one: tuple[int, str], path: str) -> None:
        """`old_one`: as it was found, and whether its attributes count whatever the new image says."""
        if path.count("/") >= DEEPEST:
            raise LeftOutError("it is too deep")
        old = os.open(f"/proc/self/fd/{old_one[0]}", INTO & ~os.O_NOFOLLOW)
        try:
            inner = self._made(*new_one)
            try:
                with os.scandir(old) as entries:
                    for entry in entries:
                        self._entry(old, inner, entry.name, f"{path}/{entry.name}")
            finally:  # also where it ends early: nobody could go where the rest is
                if path not in self.new or old_one[1]:
                    self._attributes(old, inner, path)
                    self.carried += 1
                os.close(inner)
        finally:
            os.close(old)

    def _one(self, probe: int, status: os.stat_result, new: int, name: str, path: str) -> None:
        if stat.S_ISLNK(status.st_mode):
            with suppress(FileNotFoundError):
                os.unlink("carried", dir_fd=self.stage)
            os.symlink(os.readlink("", dir_fd=probe), "carried", dir_fd=self.stage)
            os.chown("carried", status.st_uid, status.st_gid, dir_fd=self.stage, follow_symlinks=False)
        elif not stat.S_ISREG(status.st_mode):
            raise LeftOutError("it is no file")
        elif self._link(status, new, name):
            return
        else:
            self._file(probe, path)
        try:
            os.rename("carried", name, src_dir_fd=self.stage, dst_dir_fd=new)
        except OSError as error:
            raise LeftOutError(f"the new image has something else there ({error.strerror})") from error
        self.carried += 1
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            self._linked[status.st_dev, status.st_ino] = path

    def _link(self, status: os.stat_result, new: int, name: str) -> bool:
        """Whether it is another name of a file that was carried."""
        first = self._linked.get((status.st_dev, status.st_ino)) if status.st_nlink > 1 else None
        if first is None:
            return False
        with suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=new)
        try:
            os.link(first[1:], name, src_dir_fd=self.top, dst_dir_fd=new, follow_symlinks=False)
        except OSError:  # a path that is too long, say: then it is a file of its own
            return False
        self.carried += 1
        return True

    def _file(self, probe: int, path: str) -> None:
        """Copy what is open as `carried` into the stage. Nothing that is asked of it after this can be exchanged."""
        # Not held up by who holds a lease on it. It is a file, so nothing happens by opening it.
        old = os.open(f"/proc/self/fd/{probe}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(old)
            self._refuse_without_room(min(status.st_size, status.st_blocks * 512))
            with suppress(FileNotFoundError):
                os.unlink("carried", dir_fd=self.stage)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            copy = os.open("carried", flags, 0o600, dir_fd=self.stage)
            try:
                self._content(old, copy, status.st_size, path)
                self._attributes(old, copy, path)
            finally:
                os.close(copy)
        finally:
            os.close(old)

    def _content(self, old: int, copy: int, size: int, path: str) -> None:
        """As much as there was when it was opened: somebody may go on writing. Holes stay holes."""
        at = 0
        while at < size:
            try:
                at = os.lseek(old, at, os.SEEK_DATA)
                end = min(size, os.lseek(old, at, os.SEEK_HOLE))
            except OSError as error:
                if error.errno == errno.ENXIO:  # no more data
                    break
                raise
            while at < end:
                _expect_time(self.until, path)
                content = os.pread(old, min(_CHUNK, end - at), at)
                if not content:
                    break  # it was made shorter
                if content.count(0) != len(content):
                    self._refuse_without_room(len(content))
                    _write(copy, content, at)
                at += len(content)
            at = max(at, end)
        os.ftruncate(copy, size)

    def _attributes(self, old: int, copy: int, path: str) -> None:
        """Owner first: changing it clears what comes after."""
        status = os.fstat(old)
        mode, is_file = stat.S_IMODE(status.st_mode), stat.S_ISREG(status.st_mode)
        names = [name for name in os.listxattr(old) if name.startswith("user.") or name in _ACLS]
        if is_file and status.st_uid != 0 and mode & _SPECIAL:
            self.log(f"{shown(path)} lost its set-user-ID and set-group-ID bits: it is not root's")
            mode &= ~_SPECIAL
        if is_file and status.st_uid == 0 and "security.capability" in os.listxattr(old):
            names.append("security.capability")
        os.fchown(copy, status.st_uid, status.st_gid)
        os.fchmod(copy, mode)
        for name in names:
            try:
                os.setxattr(copy, name, os.getxattr(old, name))
            except OSError as error:
                if name in _ACLS:  # the group's bits may be more than the list allowed it
                    os.fchmod(copy, mode & ~0o077)
                self.log(f"{shown(path)}: {name} was not carried ({error.strerror})")
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _made(self, new: int, name: str) -> int:
        """A directory of the new root. One that is not there is made, closed until all of it is there."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=new)
        try:
            return os.open(name, INTO, dir_fd=new)
        except OSError as error:
            raise LeftOutError(f"the new image has something else there ({error.strerror})") from error

    def _refuse_without_room(self, size: int) -> None:
        volume = os.fstatvfs(self.top)
        if size > (volume.f_bavail - volume.f_blocks // _KEPT_FREE) * volume.f_frsize:
            raise LeftOutError("the volume has no room for it")
        if volume.f_files and volume.f_favail < _FILES_FREE:
            raise LeftOutError("the volume has no room for more files")

    @contextmanager
    def _leaving_out(self, path: str) -> Iterator[None]:
        try:
            yield
        except (LeftOutError, OSError) as error:
            self.left_out += 1
            if self.left_out <= NAMED:
                reason = error.strerror if isinstance(error, OSError) else error
                self.log(f"left out: {shown(path)}: {reason}")

    def _log_progress(self, path: str) -> None:
        now = time.monotonic()
        if now >= self._due:
            if self._due:
                self.log(f"{self.carried} files and directories are carried so far; at {shown(path)}")
            self._due = now + _REPORT_SECONDS


def _write(copy: int, content: bytes, at: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(copy, memoryview(content)[done:], at + done)
