"""Copying paths of one root into a new one, while users write there.

By tar(1), which goes from one open directory to the next and follows no link: owner, mode and content are always those
of one and the same file, and nobody gets more than he had. What cannot be carried is left out and named.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from images.common.jail_view import JailViewError, open_inside
from images.common.process import RefusedError
from images.jail.manifest import Entry, entry_at, shown

SECONDS: Final = 6 * 3600
"""For one path: users could go on making files for as long as somebody carries them."""

NAMED: Final = 50
"""Files that are left out, in the log; the others are counted."""

_KEPT_FREE: Final = 20
"""The part of the volume that stays free: one of so many."""

_REPORT_SECONDS: Final = 5.0
_AS_THEY_ARE: Final = (
    "--acls", "--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability", "--numeric-owner",
)  # fmt: skip
_SO_FAR: Final = "records of 10 KiB so far"


def refuse_without_room(source: Path, paths: Sequence[str]) -> None:
    """Raise RefusedError where the volume has no room for what is to be carried."""
    there = [str(source / path.lstrip("/")) for path in paths if os.path.lexists(source / path.lstrip("/"))]
    argv = ["timeout", str(SECONDS), "du", "--summarize", "--total", "--block-size=1", "--", *there]
    said = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    needed, room = int((said.split("\n")[-2:-1] or ["0"])[0].partition("\t")[0]), os.statvfs(source)
    free = (room.f_bavail - room.f_blocks // _KEPT_FREE) * room.f_frsize
    if there and needed > free:
        raise RefusedError(
            f"jail.carry: {', '.join(paths)} have {needed / 2**20:.0f} MiB, and the volume has room for "
            f"{max(0, free) / 2**20:.0f} MiB more; carry less, or raise jail.size"
        )


class Carrying:
    """One pass."""

    def __init__(self, source: Path, target: Path, was: Mapping[str, Entry] | None, log: Callable[[str], None]) -> None:
        """`was`: what the old root was when it had been filled; None: nobody knows, and the new image's files win."""
        self._source, self._target, self._was, self._log = source, target, was, log
        self._due = time.monotonic() + _REPORT_SECONDS
        self.left_out = 0

    def run(self, paths: Sequence[str]) -> None:
        """Carry these paths, with the directories above them as they are in the old root."""
        for path in paths:
            parts = path.strip("/").split("/")
            for number, name in enumerate(parts, 1):
                is_last = number == len(parts)
                if is_last or not os.path.lexists(self._target.joinpath(*parts[:number])):
                    self._copy("/".join(parts[: number - 1]), name, whole=is_last)
        self._log(
            f"{', '.join(paths)} are carried" + (f"; {self.left_out} files were left out" if self.left_out else "")
        )

    def _copy(self, above: str, name: str, *, whole: bool) -> None:
        """A file or directory, with all that is in it where it is to be `whole`."""
        opened: list[int] = []
        try:
            opened += [open_inside(root, above, make=False, kind="directory") for root in (self._source, self._target)]
            opened.append(os.memfd_create("unchanged", 0))
            os.write(opened[-1], "".join(f"{path}\n" for path in self._unchanged(above, name)).encode())
            self._pipe(opened, name, whole=whole)
        except JailViewError:
            self._leave_out(f"/{above}/{name}: there is no such path, or a link is on the way")
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _unchanged(self, above: str, name: str) -> list[str]:
        """Files that came with the old image: the new one has its own."""
        top, beginning = f"/{above}/" if above else "/", f"/{above}/{name}/" if above else f"/{name}/"
        return [
            path.removeprefix(top)
            for path, entry in (self._was or {}).items()
            if path.startswith(beginning) and entry[0] != "d" and entry_at(self._source / path[1:]) == entry
        ]

    def _pipe(self, opened: Sequence[int], name: str, *, whole: bool) -> None:
        old, new, unchanged = (f"/proc/self/fd/{descriptor}" for descriptor in opened)
        create = [
            "timeout", str(SECONDS), "tar", "--create", "--format=posix", "--sparse", *_AS_THEY_ARE, "--anchored",
            "--no-wildcards", f"--exclude-from={unchanged}", f"--directory={old}",
            *([] if whole else ["--no-recursion"]), "--", name,
        ]  # fmt: skip
        extract = [
            "tar", "--extract", "--preserve-permissions", "--same-owner", *_AS_THEY_ARE, "--warning=no-xattr-write",
            "--checkpoint=500", f"--checkpoint-action=echo=%u {_SO_FAR}", f"--directory={new}",
            *(["--skip-old-files"] if self._was is None else []),
        ]  # fmt: skip
        with subprocess.Popen(
            ["sh", "-c", f"{shlex.join(create)} | {shlex.join(extract)}"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=opened, env={**os.environ, "LC_ALL": "C"},
        ) as process:  # fmt: skip
            assert process.stderr is not None
            for line in process.stderr:
                self._tell(name, line.decode(errors="replace").strip().removeprefix("tar: "))

    def _tell(self, name: str, line: str) -> None:
        """What tar says."""
        if line.endswith(_SO_FAR):
            if time.monotonic() >= self._due:
                self._log(f"carrying {name}: {line}")
                self._due = time.monotonic() + _REPORT_SECONDS
        elif not line.startswith("Exiting with failure"):
            self._leave_out(line)

    def _leave_out(self, what: str) -> None:
        self.left_out += 1
        if self.left_out <= NAMED:
            self._log(f"left out: {shown(what)}")
