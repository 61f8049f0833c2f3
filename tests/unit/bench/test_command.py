"""The command line of `make bench`, without measuring anything."""

from __future__ import annotations

import json
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


def test_parts_are_measured_in_their_order_whatever_the_order_of_names() -> None:
    assert [part.name for part in parts.find(["render", "stack"])] == ["stack", "render"]
    assert parts.find([]) == list(PARTS)


def test_without_pulumi_its_part_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
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
