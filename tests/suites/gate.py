"""The gate: what must pass before a change lands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.stacks import ROOT
from tests.suites.run import MOST_RESCUED, Result, Run, commit, in_the_way, load, run_python, run_step
from tests.suites.steps import GATE, Step

FLAKY = ROOT / "test-record/flaky.jsonl"
"""A line for each test that failed and passed in a new process."""


def state_file() -> Path:
    """Where the last run's result is for other programs."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "slurmstack/gate.json"


def run_gate(steps: Iterable[Step], *, run: Run = run_python, flaky: Path = FLAKY) -> int:
    """Run all steps, also after one has failed, and say at the end how each went. The exit status: 0, 1, 2 or 130."""
    steps, started, tested = tuple(steps), time.monotonic(), commit()
    state_file().unlink(missing_ok=True)  # whoever reads it reads this run's result, or none
    if in_the_way(steps):
        return 2
    results: list[Result] = []
    try:
        for step in steps:
            rescued = len({test.partition("::")[0] for result in results for test in result.flaky})
            results.append(run_step(step, may_rescue=MOST_RESCUED - rescued, run=run))
    except KeyboardInterrupt:
        results += [Result(step=step.name, seconds=0, problem="interrupted") for step in steps[len(results) :]]
    _finish(results, round(time.monotonic() - started, 1), tested)
    _note_flaky(results, flaky, tested)
    if any(result.problem == "interrupted" for result in results):
        return 130
    return 0 if all(result.ok for result in results) else 1


def _finish(results: Sequence[Result], seconds: float, tested: str) -> None:
    """Write the result down, and print it."""
    written = {
        "commit": tested,
        "result": _in_a_word(results),
        "seconds": seconds,
        "load": load(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": [asdict(result) for result in results],
    }
    file = state_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    fresh.replace(file)
    print("\n".join(["", *_summary(results, seconds), f"({file})"]), flush=True)


def _in_a_word(results: Sequence[Result]) -> str:
    """`passed`, `failed`, or, where some steps were not asked for, `passed in part`: that lands nothing."""
    if not all(result.ok for result in results):
        return "failed"
    return "passed" if {step.name for step in GATE} <= {result.step for result in results} else "passed in part"


def _summary(results: Sequence[Result], seconds: float) -> list[str]:
    """The last lines: each step, its time and what failed, and the sum in the words that CI systems look for."""
    lines = [f"The gate {_in_a_word(results).replace('failed', 'FAILED')} after {seconds:.0f} s:"]
    for result in results:
        counted = f"{result.passed} passed, {len(result.failed)} failed, {result.skipped} skipped"
        lines.append(f"  {result.step:12} {'passed' if result.ok else 'FAILED'} {result.seconds:7.0f} s  {counted}")
        lines += [f"      {result.problem}"] if result.problem else []
        lines += [f"      failed: {test}" for test in result.failed]
        lines += [f"      failed once, passed in a new process: {test}" for test in result.flaky]
    passed, failed = sum(result.passed for result in results), sum(len(result.failed) for result in results)
    return [*lines, f"{passed} passed, {failed} failed"]


def _note_flaky(results: Iterable[Result], file: Path, tested: str) -> None:
    """Add what was rescued to the record: it is mended by its kind, or leaves the gate."""
    now = {"commit": tested, "day": datetime.now(UTC).date().isoformat(), "load": load()}
    lines = [json.dumps({"id": test, "step": result.step, **now}) for result in results for test in result.flaky]
    if lines:
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
