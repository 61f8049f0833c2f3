"""Homes in the jail, and binds, by real mounts and programs."""

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


def test_of_a_skeleton_links_are_taken_as_they_are_and_all_is_the_user_s(tmp_path: Path) -> None:
    skeleton = tmp_path / "etc/skel"
    (skeleton / ".config").mkdir(parents=True)
    (skeleton / ".config/key").symlink_to("/secrets/ssh/key")
    (skeleton / "tool").write_text("tool")
    (skeleton / "tool").chmod(0o4755)
    os.mkfifo(skeleton / "pipe")

    assert make_home(tmp_path, "/home/lena", ME, os.getgid())

    home = tmp_path / "home/lena"
    assert [path.name for path in home.parent.iterdir()] == ["lena"]
    assert home.stat().st_mode & 0o7777 == 0o700
    assert {path.lstat().st_uid for path in (home, *home.rglob("*"))} == {ME}
    assert str((home / ".config/key").readlink()) == "/secrets/ssh/key"
    assert (home / "tool").stat().st_mode & 0o7777 == 0o755
    assert (home / "tool").read_text() == "tool"
