"""Accounts as the program in the jail reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from config.users import User


def accounts(users: Mapping[str, User], *, extra_keys: Sequence[str]) -> dict[str, dict[str, object]]:
    """One entry per user with every default filled in. `extra_keys` are accepted for each of them."""
    return {
        name: {
            "uid": user.uid,
            "gid": user.uid if user.gid is None else user.gid,
            "groups": [],
            "shell": user.shell,
            "ssh_authorized_keys": list(dict.fromkeys((*user.ssh_authorized_keys, *extra_keys))),
            "sudo": user.sudo,
        }
        for name, user in users.items()
    }
