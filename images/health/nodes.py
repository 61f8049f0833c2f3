"""health-nodes: what the checks say about all nodes, as JSON, for `slurmstack health`. Runs in the controller's pod.

    {"at": "2026-11-21T21:55:03Z",
     "nodes": [{"name": "w-0", "states": ["IDLE"], "reason": "", "closed": false, "drained_for": null,
                "reported_at": "2026-11-21T21:54:51Z", "age_seconds": 12, "fresh": true, "note": "rack 7",
                "results": {"disks": {"status": "ok", "fault": null, "message": ""}}}]}

Times are UTC. Ages are by this pod's clock, so that the clock of whoever asks does not matter; an age is negative where
the node's clock is ahead. Keys are only ever added. Exit code 1 if slurmctld does not answer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from images.health.report import decode, note_of, stamp
from images.health.slurm import Record, Slurm, SlurmError
from images.health.watch.view import Finding


def document(records: Iterable[Record], now: float) -> dict[str, Any]:
    """All nodes as plain data. `now`: seconds since 1970."""
    return {"at": stamp(now), "nodes": [_node(record, now) for record in records]}


def _node(record: Record, now: float) -> dict[str, Any]:
    report = decode(record.comment)
    results = report.results if report is not None else {}
    return {
        "name": record.name,
        "states": sorted(record.states),
        "reason": record.reason,
        "reason_at": None if record.reason_at is None else stamp(record.reason_at),
        "closed": record.is_closed,
        "drained_for": record.own.check if record.own is not None else None,
        "reported_at": None if report is None else stamp(report.at),
        "age_seconds": None if report is None else round(now - report.at),
        # When a report has arrived is known to the watcher alone: here a node is believed by its own clock.
        "fresh": report is not None
        and all(Finding(result=result, at=float(report.at)).is_fresh(now) for result in report.results.values()),
        "results": {
            name: {"status": result.status.value, "fault": result.fault, "message": result.message}
            for name, result in results.items()
        },
        "note": note_of(record.comment),
    }


def main() -> int:
    """Entry point."""
    try:
        records = Slurm().nodes()
    except SlurmError as error:
        sys.stderr.write(f"slurmctld does not tell its nodes: {error}\n")
        return 1
    sys.stdout.write(json.dumps(document(records, time.time())) + "\n")
    return 0
