"""Slurm as the watcher sees it: node records with their health reports, and the few changes it makes.

Reads the output of `scontrol show nodes --json` of 24.11 (data_parser v0.0.42) and 26.05 (v0.0.45). Both give `state`
as a list, and `reason_changed_at` as `{"set", "infinite", "number"}`; plain values, as other parsers may give them, are
understood too. A record without a name or a state is left out: what is not known is not touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.common.command import Result, Runner, run
from images.health.node_list import ARGV, LIST_TIMEOUT_SECONDS

CHANGE_TIMEOUT_SECONDS: Final = 10.0
SLURMD_PORT: Final = 6818
TEST_RESERVATION: Final = "health-test-"
"""With the node's name: what keeps a node for a test that is run again (`node_tests/retest.py`)."""
_RUNNING: Final = "running,suspended,configuring,stopped"
_ON_NODE: Final = f"{_RUNNING},completing,signaling,stage_out"


class SlurmError(Exception):
    """slurmctld did not answer, or not in a way that is understood."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A node's record, as far as it matters here."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_at: float | None = None
    """Seconds since 1970."""
    comment: str = ""
    extra: str = ""
    pool: str = ""
    """Its features: those of a worker are its pool's."""
    started_at: float | None = None
    """When its slurmd started, in seconds since 1970."""
    address: str = ""
    """Where slurmd listens."""
    port: int = SLURMD_PORT


def parse_nodes(text: str) -> list[Record]:
    """Records in the output of `scontrol show nodes --json`. Raises SlurmError."""
    try:
        nodes = json.loads(text)["nodes"]
        return [record for node in nodes or [] if (record := _record(node)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlurmError(f"the list of nodes was not understood: {error!r}") from error


def _record(node: Mapping[str, Any]) -> Record | None:
    name, states = node.get("name"), _states(node.get("state"))
    if not isinstance(name, str) or not name or not states:
        return None
    return Record(
        name=name,
        states=states,
        reason=_text(node.get("reason")),
        reason_at=_seconds(node.get("reason_changed_at")),
        comment=_text(node.get("comment")),
        extra=_text(node.get("extra")),
        pool=_features(node.get("features")),
        started_at=_seconds(node.get("slurmd_start_time")),
        address=_text(node.get("address")) or name,
        port=int(_seconds(node.get("port")) or SLURMD_PORT),
    )


def _states(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(part for part in value.upper().split("+") if part)
    return frozenset(str(part).upper() for part in value) if isinstance(value, list) else frozenset()


def _features(value: object) -> str:
    """In one order, as a pool may have several."""
    listed = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return ",".join(sorted(str(feature) for feature in listed))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object) -> float | None:
    """A number that may be unset. Slurm gives 0 for a time that never was."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """slurmctld, through Slurm's own commands."""

    runner: Runner = run

    def nodes(self) -> list[Record]:
        """All records. Raises SlurmError."""
        result = self.runner(list(ARGV), timeout=LIST_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        return parse_nodes(result.stdout)

    def node(self, name: str) -> Record | None:
        """One record as it is now; None if there is none any more. Raises SlurmError."""
        result = self.runner(["scontrol", "show", "node", name, "--json"], timeout=CHANGE_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        return next((record for record in parse_nodes(result.stdout) if record.name == name), None)

    def drain(self, name: str, reason: str) -> Result:
        """Let no new job start on it."""
        return self._update(name, "state=drain", f"reason={reason}")

    def set_down(self, name: str, reason: str) -> Result:
        """Have its jobs start elsewhere. Slurm lifts a down when slurmd answers again, and leaves a drain."""
        return self._update(name, "state=down", f"reason={reason}")

    def set_reason(self, name: str, reason: str) -> Result:
        """Leave its state, and say something else about it."""
        return self._update(name, f"reason={reason}")

    def undrain(self, name: str, reason: str) -> Result:
        """Lift a drain, and nothing else: a node that is down stays down."""
        return self._update(name, "state=undrain", f"reason={reason}")

    def jobs_on(self, name: str) -> list[str]:
        """Numbers of jobs that run there. Raises SlurmError."""
        return sorted({word for word in self._jobs(name, _RUNNING).split() if word.isdigit()}, key=int)

    def has_jobs(self, name: str) -> bool:
        """Whether a job has the node, one that is still ending included. Raises SlurmError."""
        return bool(self._jobs(name, _ON_NODE).strip())

    def _jobs(self, name: str, states: str) -> str:
        argv = ["squeue", "--noheader", f"--states={states}", f"--nodelist={name}", "--format=%A"]
        result = self.runner(argv, timeout=CHANGE_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        return result.stdout

    def requeue(self, job: str) -> Result:
        """Have a job start again, elsewhere. Slurm refuses for interactive ones and those with `--no-requeue`."""
        return self.runner(["scontrol", "requeue", job], timeout=CHANGE_TIMEOUT_SECONDS)

    def test_reservations(self) -> list[str]:
        """Names of those that tests of nodes have made. Raises SlurmError."""
        result = self.runner(["scontrol", "show", "reservation", "--oneliner"], timeout=LIST_TIMEOUT_SECONDS)
        if not result.ok:
            raise SlurmError(result.message)
        return re.findall(rf"(?m)^ReservationName=({TEST_RESERVATION}\S+) ", result.stdout)

    def delete_reservation(self, name: str) -> Result:
        """Slurm refuses while a job that is in it waits or runs."""
        return self.runner(["scontrol", "delete", f"reservationname={name}"], timeout=CHANGE_TIMEOUT_SECONDS)

    def _update(self, name: str, *changes: str) -> Result:
        return self.runner(["scontrol", "update", f"nodename={name}", *changes], timeout=CHANGE_TIMEOUT_SECONDS)
