"""Binds over what is held open, by real mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
