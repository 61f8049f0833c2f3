"""The long suite: each stage runs alone and leaves a record, which is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from tests.stacks import ROOT
from tests.suites.run import Result, Run, commit, git, in_the_way, load, run_python, run_step
from tests.suites.steps import FULL, Step

RECORDS = ROOT / "test-record"
"""STAGE.json says how the last run of a stage went."""

MOST_SECONDS = 20 * 60
"""A stage takes no longer, so that somebody runs it."""

ANY_NUMBER = 1_000
"""Modules of a stage that get a second try: all. What only passes then is in the record as flaky."""


def run_full(steps: Iterable[Step], *, run: Run = run_python) -> int:
    """Run stages one after the other, also after one has failed. The exit status: 0, 1, 2 or 130."""
    steps = tuple(steps)
    if in_the_way(steps):
        return 2
    green = True
    try:
        for step in steps:
            tested = commit()  # before the tests: somebody may commit beside them, or edit files
            result = run_step(step, may_rescue=ANY_NUMBER, run=run)
            write(result, f"{tested.rstrip('+')}+" if commit().endswith("+") else tested)
            green = green and result.ok
    except KeyboardInterrupt:
        print("\ninterrupted: the stage that ran has no new record")
        return 130
    print("\n".join(["", *record_lines()]))
    return 0 if green else 1


def write(result: Result, tested: str) -> None:
    """Replace the stage's record."""
    record = {"commit": tested, "ended": datetime.now(UTC).isoformat(timespec="seconds"), "load": load()}
    RECORDS.mkdir(exist_ok=True)
    text = json.dumps({**record, **asdict(result)}, indent=1)
    (RECORDS / f"{result.step}.json").write_text(f"{text}\n", encoding="utf-8")


def record_lines() -> list[str]:
    """For each stage one line: how its last run ended, and how many commits ago."""
    return [_line(step.name) for step in FULL]


def _line(stage: str) -> str:
    file = RECORDS / f"{stage}.json"
    if not file.exists():
        return f"{stage}: never run"
    found = json.loads(file.read_text(encoding="utf-8"))
    revision = found["commit"].rstrip("+")
    changed = " with changes" if found["commit"].endswith("+") else ""
    since = git("rev-list", "--count", f"{revision}..HEAD")
    notes = [f"{since} commits ago" if since else "its commit is not here"]
    notes += [f"{len(found[what])} {what}" for what in ("failed", "flaky") if found[what]]
    notes += [f"{found['skipped']} skipped"] if found["skipped"] else []
    notes += [f"over {MOST_SECONDS // 60} minutes"] if found["seconds"] > MOST_SECONDS else []
    notes += [found["problem"]] if found["problem"] else []
    state = "red" if found["failed"] or found["problem"] else "green"
    return f"{stage}: {state} at {revision[:9]}{changed}, {', '.join(notes)}"
