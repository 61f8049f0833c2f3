"""Runs of `make bench` as they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import record as records
from tests.bench.record import RecordError
from tests.unit.bench.records import row, run


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    kept = run(
        row("a", 1.25, 2.5, goal=3.0, note="why"), row("b", 7, unit="MiB", nodes=1000), left_out=["engine (none)"],
        failed="some: no", complete=False,
    )  # fmt: skip
    records.write(kept, tmp_path / "new" / "run.json")
    assert records.read(tmp_path / "new" / "run.json") == kept


def test_raw_samples_goals_and_the_schema_are_in_the_file() -> None:
    document = json.loads(run(row("a", 1.25, 2.5, goal=3.0)).dump())
    assert document["schema"] == 1
    assert (document["rows"][0]["samples"], document["rows"][0]["goal"]) == ([1.25, 2.5], 3.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no record"),
        ("[]", "is no record"),
        ('{"schema": 1}', "is no record"),
        ("[" * 100_000, "is no record"),
        ('{"schema": 2, "rows": []}', "is of schema 2; this program reads 1"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=f"some.json: {message}"):
        records.read(file)


GOOD = json.loads(run(row("a", 1.0)).dump())
MACHINE, ROW = GOOD["machine"], GOOD["rows"][0]


def read_changed(tmp_path: Path, change: Mapping[str, Any]) -> str:
    """What is said of a record with other values."""
    file = tmp_path / "some.json"
    file.write_text(json.dumps({**GOOD, **change}), encoding="utf-8")
    with pytest.raises(RecordError) as raised:
        records.read(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["1"], "each must be a number of at least 0, not '1'"),
        ([1, None], "each must be a number of at least 0, not None"),
        ([True], "not True"),
        ([float("nan")], "not nan"),
        ([float("inf")], "not inf"),
        ([-0.5], "not -0.5"),
        ([10**400], "not 1000"),
        ([[1]], "not [1]"),
        ([], "must be a list of at least one number, not []"),
        (None, "must be a list of at least one number, not None"),
        (3, "must be a list of at least one number, not 3"),
    ],
)
def test_samples_that_cannot_be_used_are_told_with_their_row(tmp_path: Path, samples: Any, message: str) -> None:
    found = read_changed(tmp_path, {"rows": [ROW, {**ROW, "name": "b", "samples": samples, "nodes": 100}]})
    assert found.startswith("row 2 (b, 100 nodes): samples: ")
    assert message in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "has no rows: nothing was measured"),
        ({"rows": {}}, "rows: must be a list, not {}"),
        ({"rows": [3]}, "row 1: must be an object, not 3"),
        ({"rows": [{**ROW, "name": 5}]}, "row 1: name: must be text that is not empty, not 5"),
        ({"rows": [{**ROW, "name": ""}]}, "row 1 (): name: must be text that is not empty, not ''"),
        ({"rows": [{**ROW, "unit": None}]}, "row 1 (a): unit: must be text, not None"),
        ({"rows": [{**ROW, "goal": "3"}]}, "row 1 (a): goal: must be a number or null, not '3'"),
        ({"rows": [{**ROW, "nodes": 0}]}, "row 1 (a, 0 nodes): nodes: must be null or a whole number of at least 1"),
        ({"rows": [{**ROW, "nodes": [1]}]}, "row 1 (a, [1] nodes): nodes: must be null or a whole"),
        ({"rows": [{**ROW, "more": 0}]}, "row 1 (a): 'more' is not known"),
        ({"rows": [{"name": "a"}]}, "row 1 (a): part: is missing"),
        ({"rows": [ROW, {**ROW, "nodes": 3}, ROW]}, "row 3 (a): has the name and nodes of row 1"),
        ({"machine": []}, "machine: must be an object, not []"),
        ({"machine": {}}, "machine: cpu: is missing"),
        ({"machine": {**MACHINE, "cores": None}}, "machine: cores: must be a whole number of at least 1, not None"),
        ({"machine": {**MACHINE, "memory_gib": "8"}}, "machine: memory_gib: must be a number above 0, not '8'"),
        ({"load_at_start": []}, "load_at_start: must be a list of three numbers, not []"),
        ({"load_at_start": ["1", 1, 1]}, "load_at_start: must be a list of three numbers"),
        ({"date": 20261122}, "date: must be text, not 20261122"),
        ({"dirty": "no"}, "dirty: must be true or false, not 'no'"),
        ({"parts": None}, "parts: must be a list of names, not None"),
        ({"left_out": "all"}, "left_out: must be a list of texts, not 'all'"),
        ({"more": 1}, "'more' is not known"),
    ],
)
def test_other_values_that_cannot_be_used_are_told(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert read_changed(tmp_path, change).startswith(message)


def test_the_files_that_are_kept_can_be_read() -> None:
    for file in records.KEPT.glob("2*.json"):
        assert records.read(file).rows


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        records.read(tmp_path / "none.json")


def test_whole_runs_are_kept_with_the_sources_and_others_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(records, "PASSING", tmp_path / "passing")
    assert records.file_for(run()) == tmp_path / "kept/2026-11-22-abc1234.json"
    assert records.file_for(run(failed="some: no")).parent == tmp_path / "passing"
    part = run(parts=["rest", "array"], complete=False)
    assert records.file_for(part) == tmp_path / "passing/2026-11-22-abc1234-array-rest.json"


def test_a_second_run_does_not_replace_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", tmp_path)
    for name in ("2026-11-22-abc1234.json", "2026-11-22-abc1234-2.json", "2026-11-22-abc1234-3.json"):
        path = records.file_for(run())
        assert path.name == name
        records.write(run(), path)
