"""Policies made up for tests: any that has no contradictions."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from images.accounting.document import Policy, State, load

ACCOUNTS = ("a", "b", "c", "d")
USERS = ("ann", "ben", "cid")
QOS_NAMES = ("high", "low", "normal")


def limits(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "fairshare": draw(st.sampled_from([1, 2, 50, "parent"])),
        "priority": draw(st.sampled_from([None, 0, 7])),
        "grp_tres": draw(st.dictionaries(st.sampled_from(["cpu", "mem", "gres/gpu"]), st.integers(0, 5000))),
        "max_jobs": draw(st.sampled_from([None, 0, 3])),
        "max_wall": draw(st.sampled_from([None, 0, 90, 3000])),
    }


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A policy without contradictions."""
    qos = draw(st.sets(st.sampled_from(QOS_NAMES)))
    ranked = draw(st.permutations(sorted(qos)))
    allowed = st.sets(st.sampled_from(sorted({*qos, "normal"})))
    tree = draw(st.permutations(draw(st.lists(st.sampled_from(ACCOUNTS), min_size=1, unique=True))))
    accounts: dict[str, Any] = {}
    for name in tree:
        own = sorted(draw(allowed))
        parent = draw(st.sampled_from(["root", *accounts]))
        accounts[name] = {
            **limits(draw), "parent": parent, "description": draw(st.sampled_from([name, "Some Words"])),
            "organization": draw(st.sampled_from([name, "Org"])), "qos": own or None,
            "default_qos": draw(st.sampled_from([None, *own])),
        }  # fmt: skip
    users = {}
    for name in draw(st.sets(st.sampled_from(USERS))):
        chosen = draw(st.lists(st.sampled_from(tree), min_size=1, unique=True))
        associations = {account: {**limits(draw), **user_qos(draw, accounts[account], allowed)} for account in chosen}
        users[name] = {
            "default_account": draw(st.sampled_from(chosen)), "associations": associations,
            "admin_level": draw(st.sampled_from(["none", "operator", "administrator"])),
        }  # fmt: skip
    return {
        "version": 1, "prune": draw(st.booleans()), "accounts": accounts, "users": users,
        "qos": {name: qos_values(draw, ranked[:rank]) for rank, name in enumerate(ranked)},
    }  # fmt: skip


def user_qos(draw: st.DrawFn, account: dict[str, Any], allowed: st.SearchStrategy[set[str]]) -> dict[str, Any]:
    """A user's default may be one that only the account allows."""
    own = sorted(draw(allowed))
    return {"qos": own or None, "default_qos": draw(st.sampled_from([None, *(own or account["qos"] or [])]))}


def qos_values(draw: st.DrawFn, below: list[str]) -> dict[str, Any]:
    """`below`: what it may preempt. Slurm refuses loops."""
    return {
        "description": draw(st.sampled_from(["", "For Everybody"])),
        "priority": draw(st.integers(0, 100)),
        "preempt": sorted(draw(st.sets(st.sampled_from(below)))) if below else [],
        "flags": draw(st.lists(st.sampled_from(["DenyOnLimit", "NoDecay"]), unique=True)),
        "usage_factor": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "usage_threshold": draw(st.sampled_from([None, 0.25])),
        "preempt_exempt_time": draw(st.sampled_from([None, 0, 90])),
        "grace_time": draw(st.sampled_from([0, 30])),
        "max_tres_per_user": draw(st.dictionaries(st.just("cpu"), st.integers(0, 9))),
    }


def policy(document: dict[str, Any]) -> Policy:
    return load(json.dumps(document))


def matches(state: State, wanted: State) -> bool:
    """Whether all that is wanted is there, with these values."""
    return all(
        key in state.of(kind) and {name: state.of(kind)[key][name] for name in values} == dict(values)
        for kind in ("qos", "account", "association", "user")
        for key, values in wanted.of(kind).items()
    )
