"""A site's own checks, with real programs, in a jail of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from images.common.health.contract import Node
from images.health.local import program_check
from images.health.runner import run_checks
from tests.unit.images.health.places import Like, table, words

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot(2) needs root")


def copy_with_libraries(program: str, root: Path) -> None:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in [program, *re.findall(r"(/\S+) \(", listed)]:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    """A root file system with a shell, which checks enter."""
    made = tmp_path / "jail"
    for program in ("/bin/sh", "/bin/sleep", "/bin/grep"):
        copy_with_libraries(program, made)
    return made


def found(jail: Path, script: str = "", **changes: Any) -> str:
    """What a check of this script says."""
    program = {"command": ["/bin/sh", "-c", script], "seconds": 20, "fault": "hardware", **changes}
    node = Node(name="w-0", jail=jail, state=jail.parent / "state")
    return words(run_checks([program_check("nhc", program)], node)["nhc"])


@table(
    "script, changes, expected",
    {
        "0 is well": ("echo all is well", {}, "ok"),
        "its first line says what is wrong": (
            "echo; echo disk is full; echo more; exit 1",
            {},
            "fail [hardware]: disk is full",
        ),
        "also where it complains": ("echo ERROR: nhc: no ib0 >&2; exit 1", {}, "fail [hardware]: ERROR: nhc: no ib0"),
        "it says nothing": ("exit 3", {}, "fail [hardware]: /bin/sh ended with 3"),
        "whose fault it is": ("echo left; exit 1", {"fault": "user"}, "fail [user]: left"),
        "it hangs": ("sleep 600", {"seconds": 0.2}, "not checked: /bin/sh did not end in 0.2 s"),
        "it is killed": ("kill -9 $$", {}, "not checked: ...signal 9"),
        "it is not there": ("", {"command": ["/usr/sbin/nhc"]}, "not checked: /usr/sbin/nhc: No such file ..."),
        "it cannot be run": ("", {"command": ["/bin"]}, "not checked: /bin: Permission denied"),
    },
)
def test_a_program_s_end_says_how_the_node_is(jail: Path, script: str, changes: dict[str, Any], expected: str) -> None:
    assert found(jail, script, **changes) == Like(expected)


def test_a_jail_that_cannot_be_entered_is_told_with_its_error(jail: Path) -> None:
    assert found(jail / "none", "exit 1") == "not checked: /bin/sh: No such file or directory"


def test_it_is_root_in_the_jail_and_has_nothing_that_leads_out(jail: Path) -> None:
    assert found(jail, "read line </inside && echo $line >/seen; test -e /etc/passwd && exit 1; exit 0") == "ok"
    assert not (jail / "seen").exists()
    (jail / "inside").write_text("of the jail\n")
    assert found(jail, "read line </inside && echo $line >/seen") == "ok"
    assert (jail / "seen").read_text() == "of the jail\n"
    capabilities = found(Path("/"), "grep CapEff /proc/self/status; exit 1")
    assert capabilities == Like("fail [hardware]: CapEff:...0000000000000000")
