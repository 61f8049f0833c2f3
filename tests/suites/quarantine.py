"""Tests of the long suite that fail for a reason that is known and not mended yet. They still run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from tests.stacks import ROOT
from tests.suites import tree

FILE = ROOT / tree.QUARANTINE
MOST = 15
LONGEST_DAYS = 14
"""Then a test is mended, or deleted together with what docs/proof.md claims by it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One test in quarantine."""

    id: str
    since: date
    commit: str
    reason: str


def read() -> tuple[Entry, ...]:
    """All entries."""
    if not FILE.exists():
        return ()
    return tuple(Entry(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8")).get("test", []))


def problems(entries: Iterable[Entry], today: date) -> list[str]:
    """What is wrong with the quarantine, each a sentence."""
    entries = tuple(entries)
    found = [f"{len(entries)} tests are in quarantine, at most {MOST} may be"] if len(entries) > MOST else []
    for entry in entries:
        file = ROOT / entry.id.partition("::")[0]
        name = entry.id.partition("[")[0].rpartition("::")[2]
        if not file.exists() or f"def {name}(" not in file.read_text(encoding="utf-8"):
            found.append(f"{entry.id}: there is no such test")
        if (age := (today - entry.since).days) > LONGEST_DAYS:
            found.append(f"{entry.id}: in quarantine for {age} days, {LONGEST_DAYS} are the most")
        if not entry.reason.strip():
            found.append(f"{entry.id}: write down why it fails")
    return found


def add(tests: Iterable[str], commit: str, today: date) -> None:
    """Open an entry for each test that has none. Its reason is empty, which the gate refuses: a person writes it.

    A file that cannot be imported is no test: it is mended.
    """
    known = {entry.id for entry in read()}
    with FILE.open("a", encoding="utf-8") as out:
        for test in sorted(test for test in {*tests} - known if "::" in test):
            out.write(f'\n[[test]]\nid = {json.dumps(test)}\nsince = {today}\ncommit = "{commit}"\nreason = ""\n')
