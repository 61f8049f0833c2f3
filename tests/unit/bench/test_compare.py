"""`make bench --compare`: a worse figure is marked, and a file that cannot be read is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import record as records
from tests.bench.record import Record
from tests.bench.row import Row

SAMPLES = (1.00, 1.02, 1.04, 1.06, 1.08)


def kept(path: Path, *samples: float) -> str:
    """A run on a quiet machine, in a file."""
    run = Record(
        date="2026-11-22T20:00:00Z", commit="abc1234", dirty=False, load_at_start=[0.1, 0.1, 0.1], parts=["some"],
        machine={"cpu": "A CPU", "cores": 2, "memory_gib": 23.5, "kernel": "6.1", "python": "3.11"},
        complete=True, rows=[Row(part="some", name="a", samples=list(samples))],
    )  # fmt: skip
    records.write(run, path)
    return str(path)


@pytest.mark.parametrize(
    ("new", "verdict", "status"),
    [
        ([value * 1.3 for value in SAMPLES], "worse", 1),
        ([value * 0.7 for value in SAMPLES], "better", 0),
        ([value * 1.09 for value in SAMPLES], "same", 0),  # clear, but runs of one machine differ by as much
        ([*SAMPLES[:4], 60.0], "same", 0),  # one slow sample
        ([9.0], "too few", 0),
    ],
)
def test_a_row_is_worse_where_ranks_and_medians_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: list[float], verdict: str, status: int
) -> None:
    files = [kept(tmp_path / "old.json", *SAMPLES), kept(tmp_path / "new.json", *new)]
    assert command.main(["--compare", *files, "--fail-on-worse"]) == status
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"schema": 2}, {"rows": []}, {"machine": {}}, {"more": 1}])
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    old, bad = kept(tmp_path / "old.json", *SAMPLES), tmp_path / "bad.json"
    bad.write_text(json.dumps({**json.loads(Path(old).read_text(encoding="utf-8")), **change}), encoding="utf-8")
    assert command.main(["--compare", old, str(bad)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {bad}: ")
    assert printed.count("\n") == 1
