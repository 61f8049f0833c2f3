"""The command line of `make bench`, without measuring anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import parts, record
from tests.bench.parts import PARTS, Part
from tests.bench.row import Measuring
from tests.stacks import ROOT
from tests.unit.bench.records import row, run

SAMPLES = (1.0, 1.1, 1.2, 1.3)


def kept(path: Path, *, by: float = 1.0) -> str:
    record.write(run(row("a", *(value * by for value in SAMPLES))), path)
    return str(path)


def quick(bench: Measuring) -> None:
    """Stands in for a part."""
    bench.measure("a", lambda number: number + 1.0, runs=4, goal=9)


@pytest.fixture
def one_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only one part, which takes no time; the folder for runs of some parts."""
    for module in (command, parts):
        monkeypatch.setattr(module, "PARTS", (Part(name="some", about="", alone=quick), PARTS[0]))
    monkeypatch.setattr(record, "PASSING", tmp_path)
    monkeypatch.setattr(record, "KEPT", tmp_path / "kept")
    return tmp_path


def test_another_machine_than_this_is_refused_before_anything_is_measured(one_part: Path) -> None:
    (one_part / "kept").mkdir()
    old = kept(one_part / "kept" / "old.json")
    assert command.main(["some", "--compare", old]) == 2
    assert not list(one_part.glob("*.json"))
    assert command.main(["some", "--compare", old, "--other-machine"]) == 0


def test_nothing_measured_is_nothing_compared(
    one_part: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "PARTS", (Part(name="some", about="", alone=lambda _: None),))
    old = one_part / "old.json"
    record.write(run(row("a", 1), machine=record.machine()), old)
    assert command.main(["some", "--compare", str(old), "--fail-on-worse"]) == 2
    assert "nothing was measured" in capsys.readouterr().err


def test_a_partial_run_is_kept_apart_and_says_so(one_part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["some"]) == 0
    (file,) = one_part.glob("*.json")
    found = record.read(file)
    assert (found.complete, found.parts, found.rows[0].samples) == (False, ["some"], [1, 2, 3, 4])
    assert "only of these parts: some" in capsys.readouterr().err


def test_runs_changes_how_often_everything_is_measured(one_part: Path) -> None:
    file = one_part / "mine.json"
    assert command.main(["some", "--runs", "2", "--json", str(file)]) == 0
    assert record.read(file).rows[0].samples == [1, 2]


def test_what_was_measured_before_a_failure_is_kept(one_part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: Measuring) -> None:
        raise AssertionError("it broke\nbadly")

    two = (Part(name="some", about="", alone=quick), Part(name="bad", about="", alone=broken))
    monkeypatch.setattr(parts, "PARTS", two)
    file = one_part / "mine.json"
    assert command.main(["--json", str(file)]) == 3
    found = record.read(file)
    assert found.failed == "bad: it broke"
    assert [row.name for row in found.rows] == ["a"]


def test_make_passes_parts_and_the_file_to_compare_with_on() -> None:
    made = ["make", "--dry-run", "--always-make", "bench", "PARTS=array start", "COMPARE=old.json", "BENCH=--runs 2"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m tests.bench array start --compare old.json --runs 2" in " ".join(done.stdout.split())
