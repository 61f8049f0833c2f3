"""Accounts, QOS and users: what has to change from any policy to any other, what stays, and how the program ends.

That Slurm takes the commands in their order is for tests/slurm/test_policy.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.accounting import policy as program
from images.accounting.document import ASSOCIATION, MARK, QOS, State, unset, untouched_default_qos
from images.accounting.plan import Job, Plan, plan
from images.accounting.sacctmgr import commands
from images.common import process
from images.common.command import Result
from images.common.process import CannotGoOnError, RefusedError
from tests.fakes.commands import FakeClock
from tests.policies import documents, matches, policy

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NEW = State(qos={("normal",): untouched_default_qos()})
"""A cluster without any policy."""


def planned(present: State, document: dict[str, Any], jobs: Iterable[Job] = ()) -> Plan:
    asked = policy(document)
    return plan(present, asked.wanted, prune=asked.prune, jobs=jobs)


def made(document: dict[str, Any], present: State = NEW) -> State:
    """What is there when it is in force."""
    return planned(present, {**document, "prune": False}).target


def with_handmade(state: State) -> State:
    """Somebody has been at work with sacctmgr."""
    bare = unset(ASSOCIATION)
    account = {"parent": "root", "description": "handmade", "organization": "handmade", **bare, "fairshare": 7}
    return replace(
        state,
        accounts={**state.accounts, ("handmade",): account},
        associations={**state.associations, ("zoe", "handmade", ""): bare},
        users={**state.users, ("zoe",): {"default_account": "handmade", "admin_level": "none"}},
        qos={**state.qos, ("byhand",): {**unset(QOS), "priority": 3}},
    )


def holds_together(state: State) -> bool:
    """Whether all that is referred to is there."""
    accounts = {name for (name,) in state.accounts} | {"root"}
    return (
        all(values["parent"] in accounts for values in state.accounts.values())
        and all(account in accounts and (user,) in state.users for user, account, _ in state.associations)
        and all((name, values["default_account"], "") in state.associations for (name,), values in state.users.items())
    )


@QUICK
@given(documents(), documents(), st.booleans())
def test_any_policy_becomes_any_other_and_a_second_run_changes_nothing(
    first: dict[str, Any], second: dict[str, Any], handmade: bool
) -> None:
    present = with_handmade(made(first)) if handmade else made(first)

    after = planned(present, second).target

    assert matches(after, policy(second).wanted)
    assert holds_together(after)
    assert (("handmade",) in after.accounts) == (handmade and not second["prune"])
    assert planned(after, second).changes == ()


def many(users: int, accounts: int) -> dict[str, Any]:
    tree = {
        f"t{n:02}": {"parent": "root", "description": f"t{n:02}", "organization": f"t{n:02}"} for n in range(accounts)
    }
    people = {
        f"u{n:03}": {
            "default_account": f"t{n % accounts:02}", "admin_level": "none",
            "associations": {f"t{n % accounts:02}": {"fairshare": n % 10 // 9 + 1}},
        }
        for n in range(users)
    }  # fmt: skip
    return {"version": 1, "prune": False, "qos": {}, "accounts": tree, "users": people}


def test_users_of_one_account_with_the_same_values_are_one_command() -> None:
    calls = list(commands(planned(NEW, many(500, 5)), NEW, "test"))
    assert len(calls) < 15, "each account, and its users by what they get"


@pytest.mark.parametrize(("qos", "kept"), [({"high": {}}, "high"), ({}, None)])
def test_an_account_with_users_made_by_hand_below_is_kept_as_it_is(qos: dict[str, Any], kept: str | None) -> None:
    first = {**many(1, 1), "qos": {"high": {}}}
    first["accounts"]["t00"] |= {"qos": ["high"], "default_qos": "high"}
    present = made(first)
    users = {**present.users, ("zoe",): {"default_account": "t00", "admin_level": "none"}}
    associations = {**present.associations, ("zoe", "t00", ""): unset(ASSOCIATION)}
    found = planned(replace(present, users=users, associations=associations), {**many(0, 0), "qos": qos})
    assert ("zoe", "t00", "") in found.target.associations
    assert found.target.accounts[("t00",)]["default_qos"] == kept
    assert "! account t00 left the stack file, but something below it is kept, and so is it" in found.notes


def test_a_user_who_is_made_by_hand_while_this_is_read_stays() -> None:
    present = with_handmade(made(many(1, 1)))
    found = planned(replace(present, users={}), many(1, 1))
    assert ("zoe", "handmade", "") in found.target.associations
    assert not any("zoe" in change.key for change in found.changes)


def test_the_default_qos_is_never_removed_and_loses_what_a_stack_file_had_given_it() -> None:
    present = made({**many(1, 1), "qos": {"normal": {"description": "", "priority": 9}}})
    assert present.qos[("normal",)]["priority"] == 9
    assert made({**many(1, 1)}, present).qos == NEW.qos


@QUICK
@given(documents(), documents(), st.data())
def test_what_jobs_use_stays_until_they_end(first: dict[str, Any], second: dict[str, Any], data: st.DataObject) -> None:
    present, wanted = with_handmade(made(first)), policy(second).wanted
    used = data.draw(st.sets(st.sampled_from(sorted(present.associations)), max_size=3))
    (qos,) = data.draw(st.sampled_from(sorted(present.qos)))
    jobs = [Job(id=str(n), user=user, account=account, qos=qos) for n, (user, account, _) in enumerate(used)]

    after = planned(present, second, jobs).target

    assert matches(after, wanted)
    assert holds_together(after)
    assert used <= after.associations.keys()
    left = {key for key in used - wanted.associations.keys() if after.associations[key]["comment"] == MARK}
    assert all(after.associations[key]["max_submit_jobs"] == 0 for key in left)
    assert all(after.users[(user,)]["admin_level"] == "none" for user, *_ in left if (user,) not in wanted.users)
    assert planned(after, second, jobs).changes == ()

    pruned = planned(after, {**second, "prune": True}).target
    assert (pruned.associations.keys(), pruned.accounts.keys()) == (wanted.associations.keys(), wanted.accounts.keys())


# ---------------------------------------------------------------- the program


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [(2, RefusedError.status, "the policy has format 2"), (1, CannotGoOnError.status, "a daemon went away")],
)
def test_it_ends_for_good_only_where_trying_again_is_useless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    *, version: int, status: int, said: str,
) -> None:  # fmt: skip
    def goes_away(argv: Sequence[str], **_: Any) -> Result:
        """A slurmdbd that tells, and is gone at the first change."""
        reads = "list" in argv or argv[0] != "sacctmgr"
        return Result(code=0, stdout="test\n" if "cluster" in argv else "") if reads else refused

    refused = Result(code=1, stderr="Connection refused")
    for name, value in {"CLUSTER_NAME": "test", "CONTROLLER": "c:6817", "ACCOUNTING": "d:6819"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "end_on_sigterm", lambda: None)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**many(1, 1), "version": version}))
    with pytest.raises(SystemExit) as ended:
        program.main([str(path)], runner=goes_away, clock=FakeClock())
    assert ended.value.code == status
    assert said in capsys.readouterr().out
