"""Limits and shares of a login node, and homes that are made; tests/slurm/test_login.py logs in."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from images.common.cgroups import CannotConfineError, Subtree
from images.common.command import run
from images.login.sshd import limits_file, set_up_shares


def test_a_limit_above_the_pod_s_own_becomes_that_as_no_login_would_work_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 600))
    said: list[str] = []

    text = limits_file({"nofile": 601, "cpu": 11, "nproc": 600}, said.append)

    assert text.splitlines()[1:] == ["* - nofile 600", "* - cpu 10", "* - nproc 600"]
    assert said == [
        "login.user_limits: nofile is 600 instead of 601: more is not allowed to this pod",
        "login.user_limits: cpu is 10 instead of 11: more is not allowed to this pod",
    ]


def test_without_cgroups_there_are_no_shares_and_the_log_says_why(tmp_path: Path) -> None:
    def cannot(*_: object) -> Subtree:
        raise CannotConfineError("the reason")

    file, said = tmp_path / "shares", list[str]()
    file.write_text("of the container's start before")
    set_up_shares({"total_cpus": 100}, run, said.append, take=cannot, limit=lambda: None, file=file)

    assert not file.exists()
    assert said == ["users share this login node's CPU and memory as they come: the reason"]
