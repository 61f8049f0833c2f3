"""The command line of `make bench`, without measuring anything."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock
from unittest.mock import call as call_of

import pytest

from tests.bench import __main__ as command
from tests.bench import parts, record
from tests.bench.cluster import Cluster
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


def test_the_list_names_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{part.name} " in printed for part in PARTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["arrya"], "no such part: arrya (there are: stack, "),
        (["--compare", "old.json", "array"], "parts come before --compare"),
        (["--compare", "a.json", "b.json", "c.json"], "one file or two"),
        (["array", "--compare", "a.json", "b.json"], "leave the parts out"),
        (["--fail-on-worse"], "needs --compare"),
        (["--other-machine"], "needs --compare"),
        (["--runs", "0"], "must be a whole number of at least 1, not '0'"),
        (["--runs", "x"], "must be a whole number of at least 1, not 'x'"),
        (["--runs", "1.5"], "must be a whole number of at least 1, not '1.5'"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_compared_is_an_error_before_anything_is_measured(
    one_part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["some", "--compare", str(one_part / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    assert not list(one_part.iterdir())


def test_worse_rows_end_with_1_only_where_that_is_asked(tmp_path: Path) -> None:
    old, same, worse = kept(tmp_path / "old.json"), kept(tmp_path / "b.json"), kept(tmp_path / "c.json", by=2)
    assert command.main(["--compare", old, worse]) == 0
    assert command.main(["--compare", old, worse, "--fail-on-worse"]) == 1
    assert command.main(["--compare", worse, old, "--fail-on-worse"]) == 0
    assert command.main(["--compare", old, same, "--fail-on-worse"]) == 0


@pytest.mark.parametrize("bad", ['"rows": []', '"rows": [{"part": "some", "name": "a", "samples": ["x"]}]'])
def test_a_file_that_cannot_be_used_ends_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    good, file = kept(tmp_path / "good.json"), tmp_path / "bad.json"
    values = json.loads(Path(good).read_text(encoding="utf-8")) | json.loads(f"{{{bad}}}")
    file.write_text(json.dumps(values), encoding="utf-8")
    path = str(file)
    for arguments in (["--compare", good, path], ["--compare", path, good], ["--compare", path, path]):
        assert command.main([*arguments, "--fail-on-worse"]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"error: {path}: ")
        assert told.err.count("\n") == 1
    assert command.main(["--show", path]) == 2


def test_runs_of_different_machines_are_refused_unless_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = kept(tmp_path / "old.json"), str(tmp_path / "new.json")
    record.write(run(row("a", 2, 2.1, 2.2, 2.3), machine={**run().machine, "cores": 64}), Path(new))
    assert command.main(["--compare", old, new, "--fail-on-worse"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "different machines: 2 and 64 (cores); --other-machine" in told.err
    assert command.main(["--compare", old, new, "--fail-on-worse", "--other-machine"]) == 1
    assert "note: cores: 2 before, 64 now" in capsys.readouterr().out


def test_another_machine_than_this_is_refused_before_anything_is_measured(one_part: Path) -> None:
    (one_part / "kept").mkdir()
    old = kept(one_part / "kept" / "old.json")
    assert command.main(["some", "--compare", old]) == 2
    assert not list(one_part.glob("*.json"))
    assert command.main(["some", "--compare", old, "--other-machine"]) == 0


@pytest.mark.parametrize(("by", "status"), [(1, 3), (2, 1)])
def test_a_newer_run_of_which_a_part_failed_ends_with_3_unless_a_row_is_worse(
    tmp_path: Path, by: float, status: int
) -> None:
    new = tmp_path / "new.json"
    record.write(run(row("a", *(value * by for value in SAMPLES)), failed="some: no"), new)
    assert command.main(["--compare", kept(tmp_path / "old.json"), str(new), "--fail-on-worse"]) == status


def test_runs_without_a_row_in_common_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new.json"
    record.write(run(row("b", *SAMPLES)), new)
    assert command.main(["--compare", kept(tmp_path / "old.json"), str(new)]) == 2
    assert "no row in common" in capsys.readouterr().err


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


def test_parts_are_measured_in_their_order_whatever_the_order_of_names() -> None:
    assert [part.name for part in parts.find(["render", "stack"])] == ["stack", "render"]
    assert parts.find([]) == list(PARTS)


def test_without_pulumi_its_part_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.parts.shutil.which", lambda _: None)
    bench = Measuring()
    parts.measure(parts.find(["engine"]), bench)
    assert bench.left_out == ["engine (no `pulumi` on PATH)"]


def test_make_passes_parts_and_the_file_to_compare_with_on() -> None:
    made = ["make", "--dry-run", "--always-make", "bench", "PARTS=array start", "COMPARE=old.json", "BENCH=--runs 2"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m tests.bench array start --compare old.json --runs 2" in " ".join(done.stdout.split())


def test_each_part_begins_with_the_same_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part changes must not be in the figures of the next one, or figures would depend on what else was asked.

    The whole stack alone begins with nothing.
    """
    cluster = MagicMock()
    cluster.pods.return_value = {"controller-0": {}}
    monkeypatch.setattr(parts, "_cluster", lambda *_: nullcontext(cluster))

    def mark(name: str) -> Callable[[Measuring, Cluster], None]:
        return lambda *_: cluster.measured(name)

    measured = [Part(name=name, about="", measure=mark(name)) for name in ("stack", "setting", "rest")]
    parts.measure(measured, Measuring())

    assert [call for call in cluster.mock_calls if call != call_of.pods()] == [
        call_of.measured("stack"),
        call_of.begin_again(), call_of.measured("setting"),
        call_of.begin_again(), call_of.measured("rest"),
    ]  # fmt: skip


def test_a_part_without_the_stacks_own_starts_the_cluster_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MagicMock()
    cluster.pods.return_value = {}
    monkeypatch.setattr(parts, "_cluster", lambda *_: nullcontext(cluster))
    parts.measure([Part(name="setting", about="", measure=lambda *_: cluster.measured())], Measuring())
    assert cluster.mock_calls == [call_of.pods(), call_of.start(), call_of.begin_again(), call_of.measured()]
