"""Declared groups in the jail: their numbers and members are the declaration's, everybody else's are left alone."""

from __future__ import annotations

import pytest

from images.jail.accounts import Accounts, Declared, Table, User, apply, conflicts

NOTHING = Declared()
ML = 20001


@pytest.fixture
def accounts() -> Accounts:
    """A jail's files with two groups of the system, and one that somebody made by hand."""
    return Accounts(
        passwd=Table.parse("root:x:0:0:root:/root:/bin/bash\nvisitor:x:1234:1234::/home/visitor:/bin/bash\n"),
        shadow=Table.parse("root:*:20000:0:99999:7:::\nvisitor:*:20000:0:99999:7:::\n"),
        group=Table.parse("root:x:0:\nvideo:x:44:\ndocker:x:1500:visitor\n"),
        gshadow=Table.parse("root:*::\nvideo:*::\ndocker:!::visitor\n"),
    )


def alice(*groups: str, uid: int = 10001, gid: int | None = None) -> User:
    return User(uid=uid, gid=gid or uid, groups=groups)


def after(accounts: Accounts, *steps: Declared) -> Accounts:
    """The files after these declarations, one after the other."""
    before = NOTHING
    for declared in steps:
        accounts, before = apply(accounts, declared, before, today=20000), declared
    return accounts


def members(accounts: Accounts, group: str) -> str:
    row, shadow = accounts.group.find(group), accounts.gshadow.find(group)
    assert row is not None
    assert shadow is not None
    assert row[3] == shadow[3], "both files say the same"
    return row[3]


def test_a_declared_group_has_no_members_but_the_declared(accounts: Accounts) -> None:
    """slurmctld knows only the declared ones: another would be a member in some places and not in others."""
    declared = Declared(users={"alice": alice("ml")}, groups={"ml": ML})
    by_hand = after(accounts, declared)
    by_hand.group.put(["ml", "x", "20001", "alice,visitor"])

    assert members(apply(by_hand, declared, declared, today=20000), "ml") == "alice"


def test_members_that_somebody_added_to_other_groups_stay(accounts: Accounts) -> None:
    first = Declared(users={"alice": alice("docker")})
    assert members(after(accounts, first), "docker") == "visitor,alice"

    assert members(after(accounts, first, Declared(users={"alice": alice()})), "docker") == "visitor"


CONFLICTS = {
    "group video: was not made by slurmstack and has gid 44 in the jail, not 20001": Declared(groups={"video": ML}),
    "group ml: gid 1500 belongs to docker in the jail": Declared(groups={"ml": 1500}),
    "the group nowhere is neither declared nor in the jail": Declared(users={"alice": alice("nowhere")}),
    "the group alice is declared with gid 20001": Declared(users={"alice": alice()}, groups={"alice": ML}),
}


def test_a_conflict_is_named(accounts: Accounts) -> None:
    for message, declared in CONFLICTS.items():
        (found,) = conflicts(accounts, declared, NOTHING)
        assert message in found
