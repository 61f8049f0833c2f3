"""Accounts, QOS and users: from any policy to any other against a model of Slurm's tables, also
after a refusal; and the program `policy` as a pod starts it: what it prints, how it ends, and what it waits for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.accounting import policy as program
from images.accounting.document import MARK, QOS, State, unset
from images.accounting.policy import bring_in_line
from images.accounting.sacctmgr import Slurm, SlurmError, read
from images.common import process
from images.common.process import CannotGoOnError, RefusedError
from tests.fakes.commands import FakeClock
from tests.fakes.sacctmgr import FakeSlurm
from tests.policies import documents, matches, policy

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def apply(slurm: FakeSlurm, document: dict[str, Any]) -> list[str]:
    """What it says of it."""
    log: list[str] = []
    bring_in_line(Slurm(runner=slurm, cluster=slurm.cluster), policy(document), log.append, FakeClock())
    return log


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
    apply(slurm, {**first, "prune": False})

    apply(slurm, second)

    assert matches(present(slurm), policy(second).wanted)
    assert ("handmade" in slurm.accounts) == (handmade and not second["prune"])
    slurm.commands.clear()
    apply(slurm, second)
    assert slurm.commands == []


@QUICK
@given(documents(), documents(), st.integers(0, 12))
def test_after_a_refused_step_the_next_run_goes_on(first: dict[str, Any], second: dict[str, Any], step: int) -> None:
    slurm = with_handmade(FakeSlurm())
    apply(slurm, {**first, "prune": False})
    numbers = itertools.count()
    slurm.refuse = lambda _: "no, says Slurm" if next(numbers) == step else None

    with suppress(SlurmError):  # unless it takes fewer steps
        apply(slurm, second)
    slurm.refuse = lambda _: None
    apply(slurm, second)

    assert matches(present(slurm), policy(second).wanted)


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
    slurm = FakeSlurm()

    apply(slurm, many(500, 5))

    assert len(slurm.commands) < 15, "each account, and its users by what they get"
    assert slurm.associations[("u499", "t04", "")]["fairshare"] == "2"


def test_an_account_with_users_made_by_hand_below_is_kept() -> None:
    slurm = FakeSlurm()
    apply(slurm, many(1, 1))
    slurm._change(["add", "user", "zoe", "cluster=test", "account=t00"])

    log = apply(slurm, many(0, 0))

    assert ("zoe", "t00", "") in slurm.associations
    assert "! account t00 left the stack file, but something below it is kept, and so is it" in log


def test_the_default_qos_is_never_removed_and_loses_what_a_stack_file_had_given_it() -> None:
    slurm = FakeSlurm()
    apply(slurm, {**many(1, 1), "qos": {"normal": {"description": "", "priority": 9}}})
    assert slurm.qos["normal"]["priority"] == 9

    apply(slurm, {**many(1, 1), "prune": True})

    assert present(slurm).qos[("normal",)] == unset(QOS) | {"description": "normal qos default"}


def jobs_of(*used: tuple[str, str, str]) -> list[tuple[str, str, str, str]]:
    return [(str(number), user, qos, account) for number, (user, account, qos) in enumerate(used, 12)]


@QUICK
@given(documents(), documents(), st.data())
def test_what_jobs_use_stays_until_they_end(first: dict[str, Any], second: dict[str, Any], data: st.DataObject) -> None:
    slurm = with_handmade(FakeSlurm())
    apply(slurm, {**first, "prune": False})
    used = data.draw(st.sets(st.sampled_from(sorted(slurm.associations)), max_size=3))
    qos = data.draw(st.sampled_from(sorted(slurm.qos)))
    slurm.jobs = jobs_of(*((user, account, qos) for user, account, _ in used))

    apply(slurm, second)

    wanted = policy(second).wanted
    assert matches(present(slurm), wanted)
    assert used <= slurm.associations.keys()
    left = {key for key in used - wanted.associations.keys() if slurm.associations[key]["comment"] == MARK}
    assert all(slurm.associations[key]["maxsubmitjobs"] == 0 for key in left)
    assert all(slurm.users[user]["admin_level"] == "none" for user, *_ in left if (user,) not in wanted.users)
    slurm.commands.clear()
    apply(slurm, second)
    assert slurm.commands == []

    slurm.jobs = []
    apply(slurm, {**second, "prune": True})
    assert present(slurm).associations.keys() == wanted.associations.keys()
    assert present(slurm).accounts.keys() == wanted.accounts.keys()


# ---------------------------------------------------------------- the program

ENVIRONMENT = {"CLUSTER_NAME": "test", "CONTROLLER": "controller-0:6817", "ACCOUNTING": "slurmdbd-0:6819"}

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "prune": False,
    "accounts": {"ml": {"parent": "root", "description": "ml", "organization": "ml", "fairshare": 10}},
    "qos": {},
    "users": {"ann": {"default_account": "ml", "admin_level": "none", "associations": {"ml": {"fairshare": 2}}}},
}


Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the program with a Slurm and a document; its exit status."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "end_on_sigterm", lambda: None)
    path = tmp_path / "policy.json"

    def run(slurm: Any, document: Any = DOCUMENT) -> int:
        path.write_text(json.dumps(document))
        try:
            program.main([str(path)], runner=slurm, clock=FakeClock())
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return run


def test_a_document_of_another_version_is_refused(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(FakeSlurm(), {**DOCUMENT, "version": 2}) == RefusedError.status
    assert "the policy has format 2" in capsys.readouterr().out


def test_slurmdbd_that_goes_away_half_way_is_tried_again(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    slurm = FakeSlurm(refuse=lambda words: "Connection refused" if words[2:4] == ["add", "user"] else None)

    assert start(slurm) == CannotGoOnError.status
    assert "a daemon went away" in capsys.readouterr().out

    slurm.refuse = lambda _: None
    assert start(slurm) == 0
    assert ("ann", "ml", "") in slurm.associations
