"""A node's last results of tests, as they lie in Slurm: the field Extra of the node's record.

    {"health_tests": "2026-11-21T21:55:03Z ok cpu-speed: ... | 2026-11-21T22:01:40Z fail nccl-node [hardware]: ..."}

Each test has its own time: they run days apart. Extra is kept by slurmctld over restarts, goes with the node's record,
and its changes are not written to the accounting database (24.11 and 26.05, `update_node`). With
`SchedulerParameters=extra_constraints` Slurm refuses there what is no JSON and lets jobs ask for keys of it: so it is
JSON, and the keys of others stay. A text that is none stays under the key `note`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.common.health.contract import Result
from images.common.health.report import line_of, moment, results_in, stamp

KEY: Final = "health_tests"
NOTE: Final = "note"
_PART: Final = " | "


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a test has found on a node the last time."""

    at: int
    """When the run ended, in seconds since 1970, by slurmctld's clock."""
    result: Result


def decode(extra: str) -> dict[str, Record]:
    """The results in a node's Extra, by test. What is not understood of it is left out."""
    records: dict[str, Record] = {}
    line = _object(extra).get(KEY)
    for part in line.split(_PART) if isinstance(line, str) else []:
        time, _, said = part.strip().partition(" ")
        at = moment(time)
        if at is not None:
            records |= {name: Record(at=at, result=result) for name, result in results_in(said)}
    return records


def encode(records: Mapping[str, Record], extra: str) -> str:
    """The Extra with these results in place of the ones that it had."""
    lines = (f"{stamp(record.at)} {line_of(name, record.result)}" for name, record in sorted(records.items()))
    return json.dumps({**_object(extra), KEY: _PART.join(lines)})


def _object(extra: str) -> dict[str, Any]:
    try:
        content = json.loads(extra)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    return {NOTE: extra.strip()} if extra.strip() else {}
