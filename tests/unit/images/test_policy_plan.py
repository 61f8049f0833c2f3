"""The policy program against a model of Slurm's tables: from any policy to any other, and back when Slurm refuses."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.accounting.apply import Applier, RefusedError
from images.accounting.document import Key, Policy, State, load
from images.accounting.fields import ASSOCIATION, MARK, QOS, unset
from images.accounting.plan import plan
from images.accounting.present import Slurm, read
from tests.fakes.commands import FakeClock
from tests.fakes.sacctmgr import FakeSlurm

NOW = 1_800_000_000.0

ACCOUNTS = ("a", "b", "c", "d")
USERS = ("ann", "ben", "cid")
QOS_NAMES = ("high", "low", "normal")

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
        "version": 1, "prune": draw(st.booleans()), "accounts": accounts, "users": users, "reservations": {},
        "qos": {name: qos_values(draw, qos) for name in qos},
    }  # fmt: skip


def user_qos(draw: st.DrawFn, account: dict[str, Any], allowed: st.SearchStrategy[set[str]]) -> dict[str, Any]:
    """A user's default may be one that only the account allows."""
    own = sorted(draw(allowed))
    return {"qos": own or None, "default_qos": draw(st.sampled_from([None, *(own or account["qos"] or [])]))}


def qos_values(draw: st.DrawFn, names: set[str]) -> dict[str, Any]:
    return {
        "description": draw(st.sampled_from(["", "For Everybody"])),
        "priority": draw(st.integers(0, 100)),
        "preempt": sorted(draw(st.sets(st.sampled_from(sorted(names))))),
        "flags": draw(st.lists(st.sampled_from(["DenyOnLimit", "NoDecay"]), unique=True)),
        "usage_factor": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "usage_threshold": draw(st.sampled_from([None, 0.25])),
        "preempt_exempt_time": draw(st.sampled_from([None, 0, 90])),
        "grace_time": draw(st.sampled_from([0, 30])),
        "max_tres_per_user": draw(st.dictionaries(st.just("cpu"), st.integers(0, 9))),
    }


def policy(document: dict[str, Any]) -> Policy:
    return load(json.dumps(document))


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


def matches(state: State, wanted: State) -> bool:
    return all(
        key in state.of(kind) and {name: state.of(kind)[key][name] for name in values} == dict(values)
        for kind in ("qos", "account", "association", "user")
        for key, values in wanted.of(kind).items()
    )


@QUICK
@given(documents(), documents(), st.booleans())
def test_any_policy_becomes_any_other_and_a_second_run_changes_nothing(
    first: dict[str, Any], second: dict[str, Any], handmade: bool
) -> None:
    slurm = with_handmade(FakeSlurm()) if handmade else FakeSlurm()
    applier(slurm).bring_in_line(policy({**first, "prune": False}))

    applier(slurm).bring_in_line(policy(second))

    assert matches(present(slurm), policy(second).wanted)
    assert (("handmade",) in slurm.state().accounts) == (handmade and not second["prune"])
    slurm.commands.clear()
    applier(slurm).bring_in_line(policy(second))
    assert slurm.commands == []


@QUICK
@given(documents(), documents())
def test_what_left_the_stack_file_goes_without_pruning(first: dict[str, Any], second: dict[str, Any]) -> None:
    slurm = FakeSlurm()
    applier(slurm).bring_in_line(policy(first))

    applier(slurm).bring_in_line(policy({**second, "prune": False}))

    found, wanted = present(slurm), policy(second).wanted
    assert found.accounts.keys() == wanted.accounts.keys()
    assert found.associations.keys() == wanted.associations.keys()
    assert found.users.keys() == wanted.users.keys()
    assert found.qos.keys() == wanted.qos.keys() | {("normal",)}


@QUICK
@given(documents(), documents(), st.integers(0, 12))
def test_a_refused_step_leaves_the_policy_before_in_force(
    first: dict[str, Any], second: dict[str, Any], step: int
) -> None:
    slurm = with_handmade(FakeSlurm())
    applier(slurm).bring_in_line(policy({**first, "prune": False}))
    slurm.commands.clear()
    before, numbers, log = copy.deepcopy(slurm.state()), itertools.count(), list[str]()
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
    assert slurm.state() == before
    assert log[-1] == "the policy before is in force again"


@QUICK
@given(documents(), documents(), st.integers(0, 12))
def test_an_interrupted_run_is_finished_by_the_next_one(
    first: dict[str, Any], second: dict[str, Any], step: int
) -> None:
    slurm = FakeSlurm()
    applier(slurm).bring_in_line(policy(first))
    numbers = itertools.count()

    class EndedError(Exception):
        pass

    def end(_: list[str]) -> None:
        if next(numbers) == step:
            raise EndedError

    slurm.refuse = end
    try:
        applier(slurm).bring_in_line(policy(second))
    except EndedError:
        slurm.refuse = lambda _: None
        applier(slurm).bring_in_line(policy(second))

    assert matches(present(slurm), policy(second).wanted)


def many(users: int, accounts: int) -> dict[str, Any]:
    tree = {
        f"t{n:02}": {"parent": "root", "description": f"t{n:02}", "organization": f"t{n:02}"} for n in range(accounts)
    }
    people = {
        f"u{n:03}": {
            "default_account": f"t{n % accounts:02}", "admin_level": "none",
            "associations": {f"t{n % accounts:02}": {"fairshare": n % 7 + 1}},
        }
        for n in range(users)
    }  # fmt: skip
    return {"version": 1, "prune": False, "qos": {}, "accounts": tree, "users": people, "reservations": {}}


def test_many_users_need_few_commands() -> None:
    slurm = FakeSlurm()

    applier(slurm).bring_in_line(policy(many(500, 50)))

    assert len(slurm.commands) < 80
    assert slurm.associations[("u499", "t49", "")]["fairshare"] == 499 % 7 + 1


def test_a_swap_of_parent_and_child_is_taken_from_the_top_down() -> None:
    def tree(above: str, below: str) -> dict[str, Any]:
        blank = {"description": "x", "organization": "x"}
        return {**many(0, 0), "accounts": {above: {**blank, "parent": "root"}, below: {**blank, "parent": above}}}

    slurm = FakeSlurm()
    applier(slurm).bring_in_line(policy(tree("a", "b")))

    applier(slurm).bring_in_line(policy(tree("b", "a")))

    assert slurm.accounts["a"]["parent"] == "b"
    assert slurm.accounts["b"]["parent"] == "root"


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


def test_lines_say_what_is_made_changed_removed_and_kept() -> None:
    here = declared(ml={}, old={}, handmade={"comment": ""})
    there = declared(ml={"fairshare": 3, "grp_tres": {"cpu": 8}}, new={"fairshare": 10, "max_wall": 1500})

    planned = plan(here, there, prune=False, now=NOW)

    assert planned.lines == [
        "~ account ml: fairshare 1 => 3, grp tres none => cpu=8",
        "+ account new (parent root, fairshare 10, max wall 1-01:00:00)",
        "- account old",
    ]
    assert planned.notes == ("! account handmade was made by hand: kept (accounting.prune: true removes it)",)


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

    assert slurm.qos["normal"] == unset(QOS) | {"description": "normal qos default"}


def jobs_of(*used: tuple[str, str, str]) -> str:
    return "".join(f"{number}|{'|'.join(names)}\n" for number, names in enumerate(used, 12))


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
    assert all(slurm.associations[key]["max_submit_jobs"] == 0 for key in left)
    assert all(slurm.users[user]["admin_level"] == "none" for user, *_ in left if (user,) not in wanted.users)
    slurm.commands.clear()
    applier(slurm).bring_in_line(policy(second))
    assert slurm.commands == []

    slurm.jobs = ""
    applier(slurm).bring_in_line(policy({**second, "prune": True}))
    assert present(slurm).associations.keys() == wanted.associations.keys()
    assert present(slurm).accounts.keys() == wanted.accounts.keys()


def test_lines_say_which_jobs_keep_something() -> None:
    slurm, log = FakeSlurm(), list[str]()
    applier(slurm).bring_in_line(policy({**many(2, 1), "qos": {"old": {"description": ""}}}))
    slurm.jobs = jobs_of(*[("u000", "t00", "old")] * 7, ("other", "elsewhere", "normal"))

    applier(slurm, log).bring_in_line(policy({**many(0, 0), "qos": {"new": {"description": ""}}}))

    busy = "left the stack file, but jobs wait or run with it (12, 13, 14, 15, 16 and 2 more)"
    assert log == [
        f"! user u000 in t00 {busy}: kept, without new jobs; the first `up` after their end removes it",
        f"! account t00 {busy}: kept; the first `up` after their end removes it",
        f"! qos old {busy}: kept; the first `up` after their end removes it",
        "+ qos new",
        "~ user u000 in t00: max submit jobs none => 0",
        "- user u001 (accounts t00)",
        "the policy is in force: 3 changes",
    ]


def test_an_operator_who_left_keeps_the_jobs_and_not_the_rights() -> None:
    slurm = FakeSlurm()
    here = many(1, 1)
    here["users"]["u000"]["admin_level"] = "operator"
    applier(slurm).bring_in_line(policy(here))
    slurm.jobs = jobs_of(("u000", "t00", "normal"))

    applier(slurm).bring_in_line(policy(many(0, 1)))

    assert slurm.users["u000"]["admin_level"] == "none"


def test_a_qos_that_goes_leaves_what_was_made_by_hand() -> None:
    slurm = FakeSlurm()
    old = {"qos": {"old": {"description": ""}}}
    applier(slurm).bring_in_line(policy({**many(1, 1), **old}))
    slurm._change(["add", "user", "zoe", "cluster=test", "account=t00", "qos=normal,old", "defaultqos=old"])

    applier(slurm).bring_in_line(policy(many(1, 1)))

    assert "old" not in slurm.qos
    assert slurm.associations[("zoe", "t00", "")]["qos"] == ("normal",)
    assert slurm.associations[("zoe", "t00", "")]["default_qos"] is None
