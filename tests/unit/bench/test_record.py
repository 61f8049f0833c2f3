"""Runs of `make bench` as they are kept."""

from __future__ import annotations

import json
import socket
from pathlib import Path

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


def test_a_run_that_begins_says_what_times_depend_on_and_not_whose_machine_it_is() -> None:
    begun = records.begin(["array"], complete=False)
    assert {"cpu", "cores", "memory_gib", "kernel"} <= begun.machine.keys()
    assert len(begun.load_at_start) == 3
    assert begun.commit
    assert begun.commit != "unknown"
    assert socket.gethostname() not in begun.dump()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no record"),
        ("[]", "is no record"),
        ('{"schema": 1}', "is no record"),
        ('{"schema": 2, "rows": []}', "is of schema 2; this program reads 1"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=f"some.json: {message}"):
        records.read(file)


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
