"""The policy program against a model of Slurm's tables: from any policy to any other, and back when Slurm refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.accounting.policy import Applier
from images.accounting.present import Slurm, read
from images.common.policy.document import ASSOCIATION, MARK, QOS, Key, State, unset
from images.common.policy.plan import plan
from images.common.process import RefusedError
from tests.fakes.commands import FakeClock
from tests.fakes.sacctmgr import FakeSlurm
from tests.policies import documents, matches, policy

NOW = 1_800_000_000.0

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def applier(slurm: FakeSlurm, log: list[str] | None = None) -> Applier:
    said: list[str] = [] if log is None else log
    client = Slurm(runner=slurm, cluster=slurm.cluster)
    return Applier(slurm=client, log=said.append, wall_time=lambda: NOW, clock=FakeClock())


def present(slurm: FakeSlurm) -> State:
    return read(Slurm(runner=slurm, cluster=slurm.cluster))


def with_handmade(slurm: FakeSlurm) -> FakeSlurm:
    """Somebody has been at work with sacctmgr."""
    slurm._change(["add", "account", "handmade", "cluster=test", "parent=root", "fairshare=7"])
    slurm._change(["add", "user", "zoe", "cluster=test", "account=handmade"])
    slurm._change(["add", "qos", "byhand", "priority=3"])
    return slurm


@QUICK
@given(documents(), documents(), st.booleans())
def test_any_policy_becomes_any_other_and_a_second_run_changes_nothing(
    first: dict[str, Any], second: dict[str, Any], handmade: bool
) -> None:
    slurm = with_handmade(FakeSlurm()) if handmade else FakeSlurm()
    applier(slurm).bring_in_line(policy({**first, "prune": False}))

    applier(slurm).bring_in_line(policy(second))

    assert matches(present(slurm), policy(second).wanted)
    assert ("handmade" in slurm.accounts) == (handmade and not second["prune"])
    slurm.commands.clear()
    applier(slurm).bring_in_line(policy(second))
    assert slurm.commands == []


@QUICK
@given(documents(), documents(), st.integers(0, 12))
def test_a_refused_step_leaves_the_policy_before_in_force(
    first: dict[str, Any], second: dict[str, Any], step: int
) -> None:
    slurm = with_handmade(FakeSlurm())
    applier(slurm).bring_in_line(policy({**first, "prune": False}))
    slurm.commands.clear()
    before, numbers, log = present(slurm), itertools.count(), list[str]()
    slurm.refuse = lambda _: "no, says Slurm" if next(numbers) == step else None

    message = ""
    try:
        applier(slurm, log).bring_in_line(policy(second))
    except RefusedError as error:
        message = str(error)

    if len(slurm.commands) <= step:  # it took fewer steps
        assert message == ""
        assert matches(present(slurm), policy(second).wanted)
        return
    assert "no, says Slurm" in message
    assert present(slurm) == before
    assert log[-1] == "the policy before is in force again"


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
    return {"version": 1, "prune": False, "qos": {}, "accounts": tree, "users": people, "reservations": {}}


def test_users_of_one_account_with_the_same_values_are_one_command() -> None:
    slurm = FakeSlurm()

    applier(slurm).bring_in_line(policy(many(500, 5)))

    assert len(slurm.commands) < 10
    assert slurm.associations[("u499", "t04", "")]["fairshare"] == "2"


def declared(**accounts: dict[str, Any]) -> State:
    values: dict[Key, dict[str, Any]] = {
        (name,): {
            "parent": "root",
            "description": name,
            "organization": name,
            **unset(ASSOCIATION),
            "comment": MARK,
            **own,
        }
        for name, own in accounts.items()
    }
    return State(qos={("normal",): unset(QOS) | {"description": "normal qos default"}}, accounts=values)


def test_an_account_with_users_made_by_hand_below_is_kept() -> None:
    here = declared(old={}, below={"parent": "old"})
    here = replace(
        here,
        associations={("zoe", "below", ""): unset(ASSOCIATION)},
        users={("zoe",): {"default_account": "below", "admin_level": "none"}},
    )

    planned = plan(here, declared(), prune=False, now=NOW)

    assert planned.changes == ()
    assert "! account old is not in the stack file any more, but has things made by hand below: kept" in planned.notes


def test_the_default_qos_is_never_removed_and_loses_what_a_stack_file_had_given_it() -> None:
    slurm = FakeSlurm()
    applier(slurm).bring_in_line(policy({**many(1, 1), "qos": {"normal": {"description": "", "priority": 9}}}))
    assert slurm.qos["normal"]["priority"] == 9

    applier(slurm).bring_in_line(policy({**many(1, 1), "prune": True}))

    assert present(slurm).qos[("normal",)] == unset(QOS) | {"description": "normal qos default"}


def jobs_of(*used: tuple[str, str, str]) -> list[tuple[str, str, str, str]]:
    return [(str(number), user, qos, account) for number, (user, account, qos) in enumerate(used, 12)]


@QUICK
@given(documents(), documents(), st.data())
def test_what_jobs_use_stays_until_they_end(first: dict[str, Any], second: dict[str, Any], data: st.DataObject) -> None:
    slurm = with_handmade(FakeSlurm())
    applier(slurm).bring_in_line(policy({**first, "prune": False}))
    used = data.draw(st.sets(st.sampled_from(sorted(slurm.associations)), max_size=3))
    qos = data.draw(st.sampled_from(sorted(slurm.qos)))
    slurm.jobs = jobs_of(*((user, account, qos) for user, account, _ in used))

    applier(slurm).bring_in_line(policy(second))

    wanted = policy(second).wanted
    assert matches(present(slurm), wanted)
    assert used <= slurm.associations.keys()
    left = {key for key in used - wanted.associations.keys() if slurm.associations[key]["comment"] == MARK}
    assert all(slurm.associations[key]["maxsubmitjobs"] == 0 for key in left)
    assert all(slurm.users[user]["admin_level"] == "none" for user, *_ in left if (user,) not in wanted.users)
    slurm.commands.clear()
    applier(slurm).bring_in_line(policy(second))
    assert slurm.commands == []

    slurm.jobs = []
    applier(slurm).bring_in_line(policy({**second, "prune": True}))
    assert present(slurm).associations.keys() == wanted.associations.keys()
    assert present(slurm).accounts.keys() == wanted.accounts.keys()


def test_no_account_that_a_user_has_made_up_is_a_job_of_another_one() -> None:
    """Where no association is asked for slurmctld takes any text."""
    slurm = FakeSlurm()
    applier(slurm).bring_in_line(policy(many(1, 1)))
    slurm.jobs = jobs_of(("mallory", "a\n99|u000|normal|t00", "normal"))
    applier(slurm).bring_in_line(policy(many(0, 0)))
    assert ("u000", "t00", "") not in slurm.associations


def test_a_qos_that_goes_is_refused_by_slurm_where_it_is_somebodys_default_by_hand() -> None:
    slurm = FakeSlurm()
    old = {"qos": {"old": {"description": ""}}}
    applier(slurm).bring_in_line(policy({**many(1, 1), **old}))
    slurm._change(["add", "user", "zoe", "cluster=test", "account=t00", "qos=normal,old", "defaultqos=old"])

    with pytest.raises(RefusedError, match="old is somebody's default qos"):
        applier(slurm).bring_in_line(policy(many(1, 1)))

    slurm._change(["modify", "user", "where", "name=zoe", "set", "defaultqos=-1"])
    applier(slurm).bring_in_line(policy(many(1, 1)))
    assert slurm.associations[("zoe", "t00", "")]["qos"] == ("normal",)


def test_a_preemption_that_is_turned_around_is_never_a_loop() -> None:
    def ranked(above: str, below: str) -> dict[str, Any]:
        qos = {above: {"description": "", "preempt": [below]}, below: {"description": "", "preempt": []}}
        return {**many(0, 0), "qos": qos}

    slurm = FakeSlurm()
    for above, below in (("high", "low"), ("low", "high"), ("high", "low")):
        applier(slurm).bring_in_line(policy(ranked(above, below)))
        assert (slurm.qos[above]["preempt"], slurm.qos[below]["preempt"]) == ((below,), ())
