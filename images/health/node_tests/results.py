"""A node's last results of tests, as they lie in Slurm: the field Extra of the node's record.

    {"health_tests": "2026-11-21T21:55:03Z ok cpu-speed: ... | 2026-11-21T22:01:40Z fail nccl-node [hardware]: ..."}

Each test has its own time: they run days apart. Extra is kept by slurmctld over restarts, goes with the node's record,
and its changes are not written to the accounting database (24.11 and 26.05, `update_node`). With
`SchedulerParameters=extra_constraints` Slurm refuses there what is no JSON and lets jobs ask for keys of it: so it is
JSON, and the keys of others stay. A text that is none stays under the key `note`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from images.health.contract import Result, Status
from images.health.report import FAULTS, line_of, moment, stamp

KEY: Final = "health_tests"
NOTE: Final = "note"
_PART: Final = " | "
_LINE: Final = re.compile(
    r"(?P<at>\S+) (?P<status>ok|warn|fail|not checked) (?P<name>[a-z0-9][a-z0-9-]*)"
    r"(?: \[(?P<fault>user|node|hardware)\])?(?: \(failed with (?P<partners>[^()]*)\))?:(?: (?P<message>.*))?"
)


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a test has found on a node the last time."""

    at: int
    """When the run began, in seconds since 1970, by slurmctld's clock."""
    result: Result
    """What came through Slurm has no `values`."""
    failed_with: Mapping[str, int] = field(default_factory=dict)
    """Of a test of pairs, since the node was last well: partner -> when the run with it, which failed, began."""


def decode(extra: str) -> dict[str, Record]:
    """The results in a node's Extra, by test. What is not understood of it is left out."""
    records: dict[str, Record] = {}
    line = _object(extra).get(KEY)
    for part in line.split(_PART) if isinstance(line, str) else []:
        match = _LINE.fullmatch(part.strip())
        at = moment(match["at"]) if match else None
        if match is None or at is None:
            continue
        records[match["name"]] = Record(
            at=at,
            result=Result(
                status=Status(match["status"]),
                message=match["message"] or "",
                fault=FAULTS.get(match["fault"] or ""),
            ),
            failed_with=_partners(match["partners"] or ""),
        )
    return records


def encode(records: Mapping[str, Record], extra: str) -> str:
    """The Extra with these results in place of the ones that it had."""
    content = _object(extra)
    content[KEY] = _PART.join(_line(name, records[name]) for name in sorted(records))
    return json.dumps(content, ensure_ascii=False)


def _object(extra: str) -> dict[str, Any]:
    try:
        content = json.loads(extra)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    return {NOTE: extra.strip()} if extra.strip() else {}


def _line(name: str, record: Record) -> str:
    """`line_of` of a report, with the time before it and the partners behind the class."""
    head, _, message = line_of(name, record.result).partition(":")
    met = " ".join(f"{partner}@{stamp(at)}" for partner, at in sorted(record.failed_with.items()))
    partners = f" (failed with {met})" if met else ""
    return f"{stamp(record.at)} {head}{partners}:{message}"


def _partners(text: str) -> dict[str, int]:
    pairs = (word.rpartition("@") for word in text.split())
    return {name: at for name, _, when in pairs if name and (at := moment(when)) is not None}
