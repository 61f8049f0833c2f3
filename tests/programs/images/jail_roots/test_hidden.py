"""Named roots in the jail's volume, hidden from the first one by real mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common import jail_roots
from tests.programs.images.jail_roots.roots import fill
from tests.programs.images.mounts import run_apart

REAL = """
import os, subprocess, sys
from pathlib import Path
from images.common import jail_roots
from images.common.jail_view import Bind, bind_into_jail
jail, work = Path(sys.argv[1]), Path(sys.argv[2])
jail_roots.NOTHING = work / "nothing"
bind_into_jail(jail, jail_roots.hidden(), print)
root = jail / jail_roots.ROOTS
print("seen:", os.listdir(root))
for tried in (lambda: root.rename(jail / "moved"), root.rmdir, (root / "x").touch, lambda: (root / "blue").stat()):
    try:
        tried()
        print("done")
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_root_in_the_first_root_can_neither_see_move_nor_write_the_others(
    source: Path, volume: Path, tmp_path: Path
) -> None:
    fill(source, volume, "")
    fill(source, volume, "blue")
    done = run_apart(REAL, volume, tmp_path)
    assert done.stdout.splitlines()[1:] == [
        "seen: []", "Device or resource busy", "Device or resource busy", "Read-only file system",
        "No such file or directory",
    ], done.stdout + done.stderr  # fmt: skip
    assert jail_roots.whole(volume) == ["", "blue"]
