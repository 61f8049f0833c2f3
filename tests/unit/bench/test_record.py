"""Runs of `make bench` as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import record as records
from tests.bench.record import RecordError
from tests.unit.bench.records import row, run


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    kept = run(row("a", 1.25, 2.5, goal=3.0, note="why"), row("b", 7, unit="MiB", nodes=1000), failed="some: no")
    records.write(kept, tmp_path / "new" / "run.json")
    assert records.read(tmp_path / "new" / "run.json") == kept
    for file in records.KEPT.glob("2*.json"):
        assert records.read(file).rows


GOOD = json.loads(run(row("a", 1.0)).dump())

ROW = GOOD["rows"][0]


def with_rows(*rows: object) -> str:
    return json.dumps({**GOOD, "rows": rows})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "is no record"),
        ('{"schema": 2, "rows": []}', "is of schema 2; this program reads 1"),
        (with_rows(ROW, {**ROW, "name": "b", "samples": [True], "nodes": 100}), "row 2 (b, 100 nodes): samples: "),
        (with_rows({**ROW, "samples": []}), "row 1 (a): samples: "),
        (with_rows({**ROW, "goal": "3"}), "row 1 (a): goal: "),
        (with_rows({**ROW, "nodes": 0}), "row 1 (a, 0 nodes): nodes: "),
        (with_rows({"name": "a"}), "row 1 (a): part: is missing"),
        (with_rows(ROW, ROW), "row 2 (a): has the name and nodes of row 1"),
        (with_rows(), "has no rows"),
        (json.dumps({**GOOD, "machine": {}}), "machine: cpu: is missing"),
        (json.dumps({**GOOD, "load_at_start": ["1", 1, 1]}), "load_at_start: "),
        (json.dumps({**GOOD, "more": 1}), "'more' is not known"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError) as raised:
        records.read(file)
    assert str(raised.value).startswith(f"{file}: {message}")
    assert "\n" not in str(raised.value)


def test_whole_runs_are_kept_with_the_sources_others_apart_and_none_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(records, "PASSING", tmp_path / "passing")
    assert records.file_for(run()) == tmp_path / "kept/2026-11-22-abc1234.json"
    records.write(run(), records.file_for(run()))
    assert records.file_for(run()) == tmp_path / "kept/2026-11-22-abc1234-2.json"
    assert records.file_for(run(failed="some: no")).parent == tmp_path / "passing"
    part = run(parts=["rest", "array"], complete=False)
    assert records.file_for(part) == tmp_path / "passing/2026-11-22-abc1234-array-rest.json"
