"""What the comments of nodes say, for `slurmstack health` and `doctor`."""

from __future__ import annotations

from typing import Any

import pytest

from cli.health.nodes import node_of, parse_nodes
from images.common.health.contract import Result as Finding
from images.common.health.contract import Status
from images.common.health.report import SKEW_SECONDS, STALE_SECONDS, WELL_STALE_SECONDS, Report, encode
from images.common.health.slurm import Record
from tests.stacks import ROOT

DATA = ROOT / "tests/unit/images/health/data"
NOW = 1_795_000_000.0
"""2026-11-18T11:06:40Z."""


def record(*states: str, comment: str = "", reason: str = "") -> Record:
    return Record(name="w-0", states=frozenset(states or ("IDLE",)), comment=comment, reason=reason)


def one(found: Record) -> dict[str, Any]:
    return node_of(found, NOW).data


def comment(age: float, note: str = "", **results: Finding) -> str:
    return encode(Report(at=int(NOW - age), results=results or {"disks": Finding(status=Status.OK)}, note=note))


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_the_nodes_of_both_versions_are_read_with_their_results(version: str) -> None:
    found = parse_nodes((DATA / f"nodes-{version}.json").read_text(), NOW)
    first, second, third = (node.data for node in found.nodes)
    assert (first["name"], first["states"], first["reported_at"]) == (
        "w-0", ["DYNAMIC_NORM", "IDLE"], "2026-11-18T11:06:30Z",
    )  # fmt: skip
    assert first["results"]["disks"] == {"status": "ok", "fault": None, "message": ""}
    assert first["results"]["munge"]["status"] == "not checked"
    assert first["results"]["munge"]["message"] == "munge did not end in 5 s"
    assert (first["note"], first["closed"], first["drained_for"]) == ("rack 7", False, None)
    assert (second["closed"], second["drained_for"]) == (True, "disks")
    assert second["reason"] == "health/disks [node]: /jail 97 % used"
    assert second["reason_at"] == "2026-11-18T11:06:40Z"
    assert third["closed"]
    assert third["drained_for"] is None


def test_a_node_that_never_reported_says_so_and_keeps_its_note() -> None:
    node = one(record(comment="rack 7"))
    assert (node["reported_at"], node["age_seconds"], node["fresh"]) == (None, None, False)
    assert (node["results"], node["note"]) == ({}, "rack 7")


def test_a_report_is_fresh_as_long_as_the_watcher_believes_it() -> None:
    full = Finding(status=Status.WARN, message="86 % used")
    for age, results, fresh in [
        (WELL_STALE_SECONDS, {}, True),
        (WELL_STALE_SECONDS + 1, {}, False),
        (-SKEW_SECONDS, {}, True),
        (-SKEW_SECONDS - 1, {}, False),
        (STALE_SECONDS, {"disks": full}, True),
        (STALE_SECONDS + 1, {"disks": full}, False),
    ]:
        node = one(record(comment=comment(age, "", **results)))
        assert (node["age_seconds"], node["fresh"]) == (age, fresh)
