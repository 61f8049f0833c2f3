"""What a command of a user in the jail may do, when somebody outside starts it."""

from __future__ import annotations

import os
import re

import pytest

from tests.stacks import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot takes root")


def test_no_command_of_ours_enters_the_jail_with_the_container_s_rights() -> None:
    entering = [
        path for path in (ROOT / "cli").rglob("*.py") if re.search(r'"chroot"|--userspec', path.read_text("utf-8"))
    ]
    assert entering == []
