"""What PAM is told, shares of a login node, and homes that are made; tests/slurm/test_login.py logs in."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from images.common.cgroups import CannotConfineError, Subtree
from images.common.command import Runner, run
from images.login.sshd import OUR_MODULE, limits_file, pam_service, set_up_shares

LIMITS = {"nproc": 200, "as": 4194304, "maxlogins": 3}


def test_a_limit_above_the_pod_s_own_becomes_that_as_no_login_would_work_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 600))
    said: list[str] = []

    text = limits_file({"nofile": 601, "cpu": 11, "nproc": 600}, said.append)

    assert text.splitlines()[2:] == ["* - nofile 600", "* - cpu 10", "* - nproc 600"]
    assert said == [
        "login.user_limits: nofile is 600 instead of 601: more is not allowed to this pod",
        "login.user_limits: cpu is 10 instead of 11: more is not allowed to this pod",
    ]


def test_pam_never_authenticates_and_always_looks_whether_the_account_is_expired() -> None:
    for limits in ({}, LIMITS):
        for sssd in (False, True):
            lines = pam_service(limits, sssd=sssd).splitlines()
            assert [line for line in lines if line.startswith("auth")] == ["auth required pam_deny.so"]
            account = [line for line in lines if line.startswith("account") and "pam_exec" not in line]
            assert account[:2] == [f"account required {module}" for module in (OUR_MODULE, "pam_unix.so")], (
                "before anything that is sufficient"
            )


def test_what_a_session_may_become_is_narrowed_last() -> None:
    for sssd in (False, True):
        session = [line for line in pam_service(LIMITS, sssd=sssd).splitlines() if line.startswith("session")]
        assert session[-1] == f"session required {OUR_MODULE}"


@pytest.mark.parametrize(
    ("own", "users", "connections"), [(8192, 7168, 768), (1280, 1120, 120), (640, 480, 120), (64, 48, 12)]
)
def test_all_shares_together_are_less_than_the_login_node_has(
    tmp_path: Path, own: int, users: int, connections: int
) -> None:
    taken: list[tuple[object, ...]] = []

    def take(_: str, __: str, memory: int | None, ___: Runner) -> Subtree:
        taken.append(("users", memory))
        return Subtree(how="remounted", swap=True)

    def make(name: str, memory: int | None) -> None:
        taken.append((name, memory))

    set_up_shares({}, run, print, take=take, make=make, limit=lambda: own * 2**20, file=tmp_path / "shares")

    assert taken == [("users", users * 2**20), ("connections", connections * 2**20)]


def test_without_cgroups_there_are_no_shares_and_the_log_says_why(tmp_path: Path) -> None:
    def cannot(*_: object) -> Subtree:
        raise CannotConfineError("the reason")

    file, said = tmp_path / "shares", list[str]()
    file.write_text("of the container's start before")
    set_up_shares({"total_cpus": 100}, run, said.append, take=cannot, limit=lambda: None, file=file)

    assert not file.exists()
    assert said == ["users share this login node's CPU and memory as they come: the reason"]
