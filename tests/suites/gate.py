"""The gate: what must pass before a change lands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from local import cluster
from tests.stacks import ROOT
from tests.suites import tree
from tests.suites.run import MOST_RESCUED, Result, Run, load, run_python, run_step
from tests.suites.steps import GATE, Step

FLAKY = ROOT / tree.RECORDS / "flaky.jsonl"
"""A line for each test that failed and passed in a new process."""


def state_file() -> Path:
    """Where the last run's result is for other programs."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "slurmstack/gate.json"


def run_gate(steps: Iterable[Step], *, run: Run = run_python, flaky: Path = FLAKY) -> int:
    """Run all steps, also after one has failed, and say at the end how each went. The exit status: 0, 1, or 130."""
    steps, started, commit = tuple(steps), time.monotonic(), tree.commit()
    state_file().unlink(missing_ok=True)  # whoever reads it reads this run's result, or none
    if any(step.needs_no_cluster for step in steps) and cluster.status().exists:
        print("A local cluster is there, and the step end-to-end makes and removes one. Run `make down` first,")
        print('or leave that step out: make test STEPS="program daemons"')
        return 2
    results: list[Result] = []
    try:
        for step in steps:
            rescued = len({test.partition("::")[0] for result in results for test in result.flaky})
            results.append(run_step(step, may_rescue=MOST_RESCUED - rescued, run=run))
    except KeyboardInterrupt:
        left = [step.name for step in steps[len(results) :]]
        _finish([*results, *(Result(step=name, seconds=0, problem="interrupted") for name in left)], started, commit)
        note_flaky(results, flaky)
        return 130
    ok = _finish(results, started, commit)
    note_flaky(results, flaky)
    return 0 if ok else 1


def _finish(results: list[Result], started: float, commit: str) -> bool:
    ok = all(result.ok for result in results)
    seconds = round(time.monotonic() - started, 1)
    written = {
        "commit": commit,
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
    print("\n".join(["", *summary(results, seconds), f"({file})"]), flush=True)
    return ok


def _in_a_word(results: Iterable[Result]) -> str:
    """`passed`, `failed`, or, where some steps were not asked for, `passed in part`: that lands nothing."""
    results = tuple(results)
    if not all(result.ok for result in results):
        return "failed"
    return "passed" if {step.name for step in GATE} <= {result.step for result in results} else "passed in part"


def summary(results: Iterable[Result], seconds: float) -> list[str]:
    """The last lines: each step, its time and what failed, and the sum in the words that CI systems look for."""
    results = tuple(results)
    word = _in_a_word(results)
    lines = [f"The gate {'FAILED' if word == 'failed' else word} after {seconds:.0f} s:"]
    for result in results:
        counted = f"{result.passed} passed, {len(result.failed)} failed" if result.passed or result.failed else ""
        counted += f", {result.skipped} skipped" if result.skipped else ""
        lines.append(
            f"  {result.step:12} {'passed' if result.ok else 'FAILED'} {result.seconds:7.0f} s  {counted}".rstrip()
        )
        lines += [f"      {result.problem}"] if result.problem else []
        lines += [f"      failed: {test}" for test in result.failed]
        lines += [f"      failed once, passed in a new process: {test}" for test in result.flaky]
    passed, failed = sum(result.passed for result in results), sum(len(result.failed) for result in results)
    return [*lines, f"{passed} passed, {failed} failed"]


def note_flaky(results: Iterable[Result], file: Path) -> None:
    """Add what was rescued to the record: it is mended by its kind, or leaves the gate."""
    now = {"commit": tree.commit(), "day": datetime.now(UTC).date().isoformat(), "load": load()}
    lines = [json.dumps({"id": test, "step": result.step, **now}) for result in results for test in result.flaky]
    if lines:
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
