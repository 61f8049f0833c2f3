"""What a command of a user in the jail may do, when somebody outside starts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cli.kubectl.pods import in_jail
from tests.stacks import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot takes root")


def test_no_command_of_ours_enters_the_jail_with_the_container_s_rights() -> None:
    entering = [
        path for path in (ROOT / "cli").rglob("*.py") if re.search(r'"chroot"|--userspec', path.read_text("utf-8"))
    ]
    assert entering == []


OF_ROOT_IN_THE_JAIL = 0xA00000FB
"""As images/common/native/capabilities.c leaves them to sessions: bits 0, 1, 3 to 7, 29 and 31."""


def _run(*argv: str) -> str:
    command = ["python3", *in_jail(65534, 65533, *argv, root="/")[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that anybody may enter: those above pytest's own are root's alone."""
    with TemporaryDirectory(prefix="slurmstack-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_it_has_no_rights_and_a_set_uid_program_that_it_finds_has_those_of_root_in_the_jail(public: Path) -> None:
    status = _run("/bin/cat", "/proc/self/status")
    assert re.search(r"^Uid:\s+65534\s+65534\s+65534\s+65534$", status, re.MULTILINE)
    assert re.search(r"^Gid:\s+65533\s+65533", status, re.MULTILINE)
    assert re.search(r"^Groups:\s*65533\s*$", status, re.MULTILINE)
    theirs = public / "theirs"
    shutil.copy("/bin/cat", theirs)
    theirs.chmod(0o4755)
    status = _run(str(theirs), "/proc/self/status")
    assert int(re.findall(r"^CapBnd:\s+(\w+)", status, re.MULTILINE)[0], 16) == OF_ROOT_IN_THE_JAIL
    assert int(re.findall(r"^CapEff:\s+(\w+)", status, re.MULTILINE)[0], 16) == OF_ROOT_IN_THE_JAIL
