"""The long suite: each stage runs alone and leaves a record, which is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from local import cluster
from tests.stacks import ROOT
from tests.suites import quarantine, tree
from tests.suites.run import Result, Run, load, run_python, run_step
from tests.suites.steps import FULL, Step

RECORDS = ROOT / tree.RECORDS

MOST_SECONDS = 20 * 60
"""A stage takes no longer, so that somebody runs it."""

ANY_NUMBER = 1_000
"""Modules of a stage that get a second try: all. What only passes then is in the record as flaky."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What `test-record/STAGE.json` says."""

    commit: str
    tree: str
    """The name of the files that were tested, see `tree.tree`."""
    ended: str
    seconds: float
    load: float
    """Of the last five minutes, at the end."""
    passed: int
    skipped: int
    failed: tuple[str, ...]
    flaky: tuple[str, ...]
    quarantined: tuple[str, ...]
    """Those that failed and whose reason is known."""
    problem: str

    @property
    def green(self) -> bool:
        return not self.problem and not self.failed


def run_full(steps: Iterable[Step], *, run: Run = run_python) -> int:
    """Run stages one after the other, also after one has failed. The exit status: 0, 1, 2 or 130."""
    steps = tuple(steps)
    if any(step.needs_no_cluster for step in steps) and cluster.status().exists:
        print("A local cluster is there, and these stages make and remove one: run `make down` first.")
        return 2
    green = True
    try:
        for step in steps:
            tested = tree.commit(), tree.tree()  # before the tests: somebody may commit beside them
            result = run_step(step, may_rescue=ANY_NUMBER, run=run)
            if tree.tree().endswith("+"):  # somebody has edited files beside it
                tested = f"{tested[0].rstrip('+')}+", f"{tested[1].rstrip('+')}+"
            record = _record(result, *tested)
            if record.failed:
                quarantine.add(record.failed, record.commit, datetime.now(UTC).date())
            write(step.name, record)
            green = green and record.green
    except KeyboardInterrupt:
        print("\ninterrupted: the stage that ran has no new record")
        return 130
    print("\n".join(["", *record_lines()]))
    return 0 if green else 1


def _record(result: Result, commit: str, tested: str) -> Record:
    known = {entry.id for entry in quarantine.read() if entry.reason.strip()}
    return Record(
        commit=commit,
        tree=tested,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=result.seconds,
        load=load(),
        passed=result.passed,
        skipped=result.skipped,
        failed=tuple(test for test in result.failed if test not in known),
        flaky=result.flaky,
        quarantined=tuple(test for test in result.failed if test in known),
        problem=result.problem,
    )


def write(stage: str, record: Record) -> None:
    """Replace the stage's record."""
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / f"{stage}.json").write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")


def record_lines() -> list[str]:
    """For each stage one line: how its last run ended, how many commits ago, and how many of its tests are open.

    Then a line for each thing that is wrong with the quarantine.
    """
    stages = [_line(step.name, RECORDS / f"{step.name}.json") for step in FULL]
    wrong = quarantine.problems(quarantine.read(), datetime.now(UTC).date())
    return [*stages, *(f"{tree.QUARANTINE}: {problem}" for problem in wrong)]


def _line(stage: str, file: Path) -> str:
    if not file.exists():
        return f"{stage}: never run"
    found = json.loads(file.read_text(encoding="utf-8"))
    revision = found["commit"].rstrip("+")
    since = tree.commits_since(revision)
    age = (
        "this tree"
        if found["tree"] == tree.tree() and not found["tree"].endswith("+")
        else "its commit is not here"
        if since is None
        else f"{since} commits ago"
    )
    state = "red" if found["failed"] or found["problem"] else "green"
    opened = len(found["failed"]) + len(found["quarantined"])
    flaky = f", {len(found['flaky'])} flaky" if found["flaky"] else ""
    notes = f", {found['skipped']} skipped" if found["skipped"] else ""
    notes += f", over {MOST_SECONDS // 60} minutes" if found["seconds"] > MOST_SECONDS else ""
    notes += f": {found['problem']}" if found["problem"] else ""
    changed = " with changes" if found["commit"].endswith("+") else ""
    return f"{stage}: {state} at {revision[:9]}{changed}, {age}; {opened} open{flaky}{notes}"
