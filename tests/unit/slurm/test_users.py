"""What the daemons outside the jail know of the declared users."""

from __future__ import annotations

from typing import Any

from config import load_config
from slurm.conf import config_hash, render
from slurm.users import accounts, identity_files
from tests import stacks
from tests.stacks import ALICE_KEY

KEY = ALICE_KEY.split()[1]


def files(users: dict[str, Any], groups: dict[str, Any] | None = None) -> dict[str, str]:
    return identity_files(load_config({**stacks.dev(), "users": users, "groups": groups or {}}))


def test_a_user_whose_first_group_is_declared_has_no_other() -> None:
    assert files({"alice": {"uid": 10001, "gid": 20001}}, {"ml": {"gid": 20001}})["group"] == "ml:x:20001:\n"


def test_the_order_in_the_stack_file_changes_nothing() -> None:
    one, two = {"a": {"uid": 10001}, "b": {"uid": 10002}}, {"b": {"uid": 10002}, "a": {"uid": 10001}}

    assert files(one) == files(two)


def test_no_key_is_in_slurm_s_configuration() -> None:
    config = load_config({**stacks.dev(), "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [ALICE_KEY]}}})

    assert not any(KEY in content for content in render(config).values())
    assert KEY in str(accounts(config.users, extra_keys=()))


def test_a_changed_key_does_not_change_slurm_s_configuration_and_a_new_user_does() -> None:
    with_key = {"alice": {"uid": 10001, "ssh_authorized_keys": [ALICE_KEY]}}
    hashes = [
        config_hash(render(load_config({**stacks.dev(), "users": users})))
        for users in ({"alice": {"uid": 10001}}, with_key, {**with_key, "bob": {"uid": 10002}})
    ]

    assert hashes[0] == hashes[1] != hashes[2]
