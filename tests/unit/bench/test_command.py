"""The command line of `make bench`, without measuring anything."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock
from unittest.mock import call as call_of

import pytest

from tests.bench import __main__ as command
from tests.bench import parts, record
from tests.bench.parts import PARTS, Part
from tests.bench.row import Measuring
from tests.unit.bench.records import row, run

SAMPLES = (1.0, 1.1, 1.2, 1.3)


def kept(path: Path, *, by: float = 1.0, name: str = "a", failed: str = "", cores: int = 2) -> str:
    machine = {**run().machine, "cores": cores}
    record.write(run(row(name, *(value * by for value in SAMPLES)), failed=failed, machine=machine), path)
    return str(path)


def quick(bench: Measuring) -> None:
    """Stands in for a part."""
    bench.measure("a", lambda number: number + 1.0, runs=4, goal=9)


def broken(bench: Measuring) -> None:
    raise AssertionError("it broke\nbadly")


@pytest.fixture
def one_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only one part, which takes no time; the folder for runs of some parts."""
    for module in (command, parts):
        monkeypatch.setattr(module, "PARTS", (Part(name="some", about="", alone=quick), PARTS[0]))
    monkeypatch.setattr(record, "PASSING", tmp_path)
    monkeypatch.setattr(record, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(record, "_git", lambda *_: "abc1234")
    return tmp_path


def test_wrong_usage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in [
        (["arrya"], "no such part: arrya (there are: stack, "),
        (["--compare", "old.json", "array"], "parts come before --compare"),
        (["--compare", "a.json", "b.json", "c.json"], "one file or two"),
        (["array", "--compare", "a.json", "b.json"], "leave the parts out"),
        (["--fail-on-worse"], "needs --compare"),
        (["--runs", "0"], "must be a whole number of at least 1, not '0'"),
    ]:
        with pytest.raises(SystemExit) as ended:
            command.main(arguments)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_the_exit_status_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, same, worse = kept(tmp_path / "old.json"), kept(tmp_path / "b.json"), kept(tmp_path / "c.json", by=2)
    other = kept(tmp_path / "d.json", by=2, cores=64)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({**json.loads(Path(old).read_text(encoding="utf-8")), "rows": []}), encoding="utf-8")
    for files, status in [
        ([old, worse], 1),
        ([worse, old], 0),
        ([old, same], 0),
        ([old, kept(tmp_path / "e.json", failed="some: no")], 3),
        ([old, kept(tmp_path / "f.json", by=2, failed="some: no")], 1),
        ([old, kept(tmp_path / "g.json", name="b")], 2),
        ([old, str(bad)], 2),
        ([old, other], 2),
        ([old, other, "--other-machine"], 1),
    ]:
        assert command.main(["--compare", *files, "--fail-on-worse"]) == status, files
        assert (status == 2) == capsys.readouterr().err.startswith("error: "), files
    assert command.main(["--compare", old, worse]) == 0


def test_parts_are_measured_in_their_order_and_without_pulumi_its_part_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [part.name for part in parts.find(["render", "stack"])] == ["stack", "render"]
    assert parts.find([]) == list(PARTS)
    monkeypatch.setattr("tests.bench.parts.shutil.which", lambda _: None)
    bench = Measuring()
    parts.measure(parts.find(["engine"]), bench)
    assert bench.left_out == ["engine (no `pulumi` on PATH)"]


def test_each_part_begins_with_the_same_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part changes must not be in the figures of the next one, or figures would depend on what else was asked.

    The whole stack alone begins with nothing.
    """
    cluster = MagicMock()
    cluster.pods.return_value = {"controller-0": {}}
    monkeypatch.setattr(parts, "_cluster", lambda *_: nullcontext(cluster))
    names = ("stack", "setting", "rest")
    measured = [Part(name=name, about="", measure=lambda *_, name=name: cluster.measured(name)) for name in names]
    parts.measure(measured, Measuring())
    assert [call for call in cluster.mock_calls if call != call_of.pods()] == [
        call_of.measured("stack"),
        call_of.begin_again(), call_of.measured("setting"),
        call_of.begin_again(), call_of.measured("rest"),
    ]  # fmt: skip


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
    two = (Part(name="some", about="", alone=quick), Part(name="bad", about="", alone=broken))
    monkeypatch.setattr(parts, "PARTS", two)
    file = one_part / "mine.json"
    assert command.main(["--json", str(file)]) == 3
    found = record.read(file)
    assert found.failed == "bad: it broke"
    assert [row.name for row in found.rows] == ["a"]
