"""Homes on a volume of their own, and binds over what is held open, by real mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.jail_view import make_home
from tests.programs.images.mounts import run_apart

ME = os.getuid() or 10001


BOUND = """
import os, subprocess, sys
from pathlib import Path
from images.common.jail_view import make_home
from images.common.jail_view import Bind, show
top = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", top / "homes"], check=True)
show(top / "jail", Bind(path="/home", source=str(top / "homes")))
print(make_home(top / "jail", "/home/DOMAIN/carol", 10003, 10003))
print(os.listdir(top / "homes/DOMAIN"), (top / "homes/DOMAIN/carol").stat().st_uid)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_home_at_the_first_login_is_made_across_the_mount_point(tmp_path: Path) -> None:
    for name in ("jail/home", "jail/etc/skel", "homes"):
        (tmp_path / name).mkdir(parents=True)
    done = run_apart(BOUND, tmp_path)
    assert done.stdout.splitlines() == ["True", "['carol'] 10003"], done.stderr
    assert list((tmp_path / "jail/home").iterdir()) == []
    assert make_home(tmp_path / "jail", "/home/other", ME, ME)


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
