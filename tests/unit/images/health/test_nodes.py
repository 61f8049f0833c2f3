"""What `health-nodes` prints for `slurmstack health`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result
from images.health import nodes
from images.health.contract import Result as Finding
from images.health.contract import Status
from images.health.report import Report, encode
from images.health.slurm import Record, Slurm
from images.health.watch.view import SKEW_SECONDS, STALE_SECONDS, WELL_STALE_SECONDS
from tests.fakes.commands import FakeRunner

DATA = Path(__file__).parent / "data"
NOW = 1_795_000_000.0
"""2026-11-18T11:06:40Z."""


def record(*states: str, comment: str = "", reason: str = "") -> Record:
    return Record(name="w-0", states=frozenset(states or ("IDLE",)), comment=comment, reason=reason)


def one(found: Record) -> dict[str, Any]:
    (node,) = nodes.document([found], NOW)["nodes"]
    return dict(node)


def comment(age: float, note: str = "", **results: Finding) -> str:
    return encode(Report(at=int(NOW - age), results=results or {"disks": Finding(status=Status.OK)}, note=note))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Result], tuple[int, Any]]:
    """The program's exit code and what it wrote, for an answer of scontrol."""

    def run(given: Result) -> tuple[int, Any]:
        monkeypatch.setattr(nodes, "Slurm", lambda: Slurm(runner=FakeRunner({"scontrol show nodes --json": given})))
        code = nodes.main()
        return code, capsys.readouterr()

    return run


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_the_nodes_of_both_versions_are_printed_with_their_results(
    version: str, answer: Callable[[Result], tuple[int, Any]]
) -> None:
    code, printed = answer(Result(code=0, stdout=(DATA / f"nodes-{version}.json").read_text()))
    assert code == 0
    first, second, third = json.loads(printed.out)["nodes"]
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


def test_without_an_answer_of_slurmctld_there_is_one_line_and_no_empty_list(
    answer: Callable[[Result], tuple[int, Any]],
) -> None:
    for result, why in [
        (Result(code=1, stderr="slurm_load_node error: Unable to contact slurm controller\n"), "Unable to contact"),
        (Result(code=0, stdout="garbage"), "not understood"),
    ]:
        code, printed = answer(result)
        assert (code, printed.out) == (1, "")
        (line,) = printed.err.splitlines()
        assert line.startswith("slurmctld ")
        assert why in line
