"""Users and groups: numbers that only one may have, and names that must be known."""

from __future__ import annotations

import pytest

from config import load_config
from tests.unit.config.messages import with_sections


def test_a_declared_group_may_be_the_primary_group_of_several() -> None:
    users = {name: {"uid": uid, "gid": 5000} for name, uid in (("alice", 10001), ("bob", 10002))}
    config = load_config(with_sections(users=users, groups={"research": {"gid": 5000}}))
    assert config.users["bob"].gid == 5000


@pytest.mark.parametrize("shell", ["/bin/zsh", "/home/alice/.local/bin/fish", "/opt/..x/a-b_1.2"])
def test_a_shell_may_be_anywhere_in_the_jail(shell: str) -> None:
    assert load_config(with_sections(users={"alice": {"uid": 10001, "shell": shell}})).users["alice"].shell == shell
