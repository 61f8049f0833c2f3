"""Who may have the warden make namespaces of a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.worker.namespaces import Owner
from tests.unit.images.kept import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(directory=tmp_path)


def test_namespaces_are_made_around_the_job_s_cell_and_answered_by_who_makes_them(kept: Kept) -> None:
    kept.enter(5, "17")

    assert kept.ask(6, "namespaces 17 10001 10002 10002,20") == ""

    assert kept.made == [(6, kept.directory / "cells/17", Owner(uid=10001, gid=10002, groups=(10002, 20)))]
    assert kept.ask(6, "namespaces 17 10001 10002 10002") == "", "whoever else asks is no step by that"
    assert not kept.log


def test_a_step_asks_for_no_namespaces_from_within_the_jail(kept: Kept) -> None:
    kept.enter(5, "17")
    assert kept.ask(5, "namespaces 17 10001 10002 10002") == "this is a step of job 17"
    assert not kept.made


def test_what_is_no_request_for_namespaces_is_refused(kept: Kept) -> None:
    kept.enter(5, "17")
    for request in (
        "namespaces", "namespaces 17", "namespaces 17 1 1", "namespaces 17 1 1 x", "namespaces 17 1 1 1,",
        "namespaces 17 1 1 1 1", "namespaces 18 1 1 1", "namespaces ../17 1 1 1", "namespaces 17 0 1 1",
        "namespaces 17 -1 1 1", "namespaces 17 1 -1 1", "namespaces 17 1 1 1,-1", "namespaces  17 1 1 1",
    ):  # fmt: skip
        assert kept.ask(6, request)
        assert not kept.made
        assert len(kept.log) == 1, request
        kept.log.clear()
