"""The runner of the tests: what it makes of pytest's words, of failures, and of what passes the second time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suites import gate, run
from tests.suites.run import run_step
from tests.suites.steps import GATE, Step


class PlayedPytest:
    """Takes the place of the processes: each run of pytest writes the next report and ends as pytest would."""

    def __init__(self, *runs: dict[str, str]) -> None:
        self._runs: Iterator[dict[str, str]] = iter(runs)
        self.commands: list[tuple[str, ...]] = []
        self.statuses: dict[tuple[str, ...], int] = {}

    def __call__(self, arguments: tuple[str, ...]) -> int:
        self.commands.append(arguments)
        if "pytest" not in arguments:
            return self.statuses.get(arguments, 0)
        outcomes = next(self._runs)
        if not outcomes:
            return 3
        [report] = [option.partition("=")[2] for option in arguments if option.startswith("--junitxml=")]
        Path(report).write_text(junit_file(outcomes), encoding="utf-8")
        return 1 if {"failure", "error", "crash"} & {*outcomes.values()} else 0


def junit_file(outcomes: dict[str, str]) -> str:
    """A report in the form of pytest 9 with xunit1: test -> `passed`, `failure`, `error`, `skipped`, `crash`."""
    cases = []
    for test, outcome in outcomes.items():
        file, *within, name = test.split("::")
        classname = ".".join([file.removesuffix(".py").replace("/", "."), *within])
        inner = "" if outcome == "passed" else f'<{outcome} message="m">text</{outcome}>'
        if outcome == "crash":
            inner = '<error message="failed on setup with &quot;worker gw1 crashed while running x&quot;">text</error>'
        cases.append(f'<testcase classname="{classname}" file="{file}" line="3" name="{name}">{inner}</testcase>')
    return f'<testsuites><testsuite name="pytest">{"".join(cases)}</testsuite></testsuites>'


STEP = Step(name="daemons", about="", pytest=("-m", "gate", "tests/slurm"), before=(("begin",),), after=(("end",),))
A, B, C = (f"tests/slurm/test_{letter}.py::test_it" for letter in "abc")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are written to other places than usual, and git is not asked."""
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run, "git", lambda *_: "")


def test_ids_are_read_as_pytest_takes_them_and_a_file_that_cannot_be_collected_has_failed(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    outcomes = {
        "tests/unit/test_x.py::test_a[24.11-b.c]": "passed",
        "tests/unit/test_x.py::Class::test_b": "failure",
        "tests/unit/test_x.py::test_c": "error",
        "tests/unit/test_x.py::test_d": "skipped",
    }
    case = '<testcase classname="" file="tests/unit/test_y.py" name="tests.unit.test_y"><error message="m"/></testcase>'
    report.write_text(junit_file(outcomes).replace("</testsuite>", f"{case}</testsuite>"), encoding="utf-8")
    found = run.read(report)
    assert found is not None
    assert found.passed == {"tests/unit/test_x.py::test_a[24.11-b.c]"}
    assert found.failed == {
        "tests/unit/test_x.py::Class::test_b",
        "tests/unit/test_x.py::test_c",
        "tests/unit/test_y.py",
    }
    assert found.skipped == {"tests/unit/test_x.py::test_d"}


def test_a_module_that_failed_runs_once_more_in_a_new_process_with_its_clusters_made_anew() -> None:
    played = PlayedPytest({A: "failure", B: "passed"}, {A: "passed"})
    result = run_step(STEP, run=played)
    assert (result.ok, result.flaky, result.failed) == (True, (A,), ())
    first, second = [command for command in played.commands if "pytest" in command]
    assert first[-1] == "tests/slurm"
    assert second[-3:] == ("-m", "gate", "tests/slurm/test_a.py")
    assert [command for command in played.commands if "pytest" not in command] == [("begin",), ("end",)] * 2


def test_a_run_that_says_nothing_about_all_tests_has_failed() -> None:
    assert not run_step(STEP, run=PlayedPytest({A: "skipped"})).ok
    played = PlayedPytest({A: "crash", B: "passed"})
    result = run_step(STEP, run=played)
    assert (result.ok, result.failed, A in result.problem) == (False, (A,), True)


def test_a_cluster_that_cannot_be_put_away_fails_the_step_and_gives_no_second_try() -> None:
    for outcome in ("passed", "failure"):
        played = PlayedPytest({A: outcome})
        played.statuses[("end",)] = 5
        result = run_step(STEP, run=played)
        assert (result.ok, "end ended with status 5" in result.problem) == (False, True)
        assert len([command for command in played.commands if "pytest" in command]) == 1


def test_more_modules_than_two_are_not_run_again() -> None:
    result = run_step(STEP, run=PlayedPytest({A: "failure", B: "error", C: "failure"}))
    assert result.failed == (A, B, C)


@pytest.mark.parametrize("status", [1, 139])
def test_what_does_not_come_to_its_end_has_failed(status: int) -> None:
    assert not run_step(STEP, run=PlayedPytest({})).ok, "no report"
    broken = PlayedPytest({A: "passed"})
    broken.statuses[("begin",)] = status
    result = run_step(STEP, run=broken)
    assert not result.ok
    assert "begin" in result.problem
    assert broken.commands[-1] == ("end",), "what it has made is put away"


def test_all_steps_run_and_the_summary_names_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = Step(name="program", about="", pytest=("tests/unit",))
    played = PlayedPytest({A: "failure"}, {A: "failure"}, {B: "passed", C: "failure"}, {C: "passed"})
    assert gate.run_gate([STEP, second], run=played, flaky=tmp_path / "record/flaky.jsonl") == 1
    printed = capsys.readouterr().out
    assert f"failed: {A}" in printed
    assert f"passed in a new process: {C}" in printed
    assert printed.splitlines()[-2] == "2 passed, 1 failed"
    written = json.loads((tmp_path / "state/slurmstack/gate.json").read_text())
    assert written["result"] == "failed"
    assert [(step["step"], step["failed"], step["flaky"]) for step in written["steps"]] == [
        ("daemons", [A], []),
        ("program", [], [C]),
    ]
    [line] = (tmp_path / "record/flaky.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == C


def test_what_fails_only_the_second_time_has_failed_too() -> None:
    other = A.replace("test_it", "test_other")
    played = PlayedPytest({A: "failure", other: "passed"}, {A: "passed", other: "failure"})
    result = run_step(STEP, run=played)
    assert (result.ok, result.failed, result.flaky, result.passed) == (False, (other,), (A,), 1)


def test_steps_alone_are_not_the_gate(tmp_path: Path) -> None:
    assert gate.run_gate([STEP], run=PlayedPytest({A: "passed"}), flaky=tmp_path / "flaky.jsonl") == 0
    assert json.loads((tmp_path / "state/slurmstack/gate.json").read_text())["result"] == "passed in part"


def test_a_third_rescued_module_fails_the_gate(tmp_path: Path) -> None:
    second = Step(name="program", about="", pytest=("tests/unit",))
    played = PlayedPytest({A: "failure", B: "failure"}, {A: "passed", B: "passed"}, {C: "failure"}, {C: "passed"})
    assert gate.run_gate([STEP, second], run=played, flaky=tmp_path / "flaky.jsonl") == 1


def test_a_cluster_that_somebody_uses_is_not_taken_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class There:
        exists = True

    monkeypatch.setattr("local.cluster.status", There)
    played = PlayedPytest()
    earlier = tmp_path / "state/slurmstack/gate.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text('{"result": "passed"}')
    assert gate.run_gate(GATE, run=played) == 2
    assert not earlier.exists(), "a result that is not this run's"
    made_meanwhile = run_step(GATE[-1], run=played)
    assert (made_meanwhile.ok, "make down" in made_meanwhile.problem) == (False, True)
    assert not played.commands
    assert "make down" in capsys.readouterr().out
