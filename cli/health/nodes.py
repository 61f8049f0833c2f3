"""Nodes, and what their checks found: the comment in which each has told it (images/common/health/report.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, hint_after, in_controller, refuse_no_namespace
from images.common.health.contract import Result, Status
from images.common.health.report import SKEW_SECONDS, Finding, Report, decode, line_of, note_of, stamp
from images.common.health.slurm import Record, SlurmError, parse_nodes

Verdict = Literal["well", "failing", "unknown", "asleep"]
"""Of a node as a whole. `failing`: a check fails, or keeps the node drained. `unknown`: no report, an old one, a check
that could not tell, or a node that does not answer. `asleep`: not there on purpose. Warnings are well."""

_ORDER = (Status.FAIL, Status.NOT_CHECKED, Status.WARN)


@dataclass(frozen=True, kw_only=True)
class Found(Result):
    """What one check found."""

    check: str

    @property
    def line(self) -> str:
        """For people: `fail disks [node]: /jail: 97 % of the space used, 95 % allowed`."""
        return line_of(self.check, self).removesuffix(":")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of Slurm."""

    record: Record
    report: Report | None
    """None: it has never reported, or what is there is none."""
    now: float
    """By the controller's clock, in seconds since 1970: the clock of whoever asks does not matter."""

    @property
    def name(self) -> str:
        """Slurm's of it."""
        return self.record.name

    @property
    def drained_for(self) -> str | None:
        """The check that keeps it drained."""
        return self.record.own

    @property
    def age(self) -> int | None:
        """Seconds since its report; negative where its clock is ahead, None without a report."""
        return None if self.report is None else round(self.now - self.report.at)

    @property
    def fresh(self) -> bool:
        """Whether the report says something about now, by the clock of its node, which may be ahead."""
        if self.report is None or self.report.at > self.now + SKEW_SECONDS:
            return False
        at = float(self.report.at)
        return all(Finding(result=one, at=at).is_fresh(self.now) for one in self.report.results.values())

    @property
    def found(self) -> tuple[Found, ...]:
        """What each check found."""
        results = self.report.results if self.report is not None else {}
        return tuple(Found(check=name, **vars(one)) for name, one in results.items())

    @property
    def findings(self) -> list[Found]:
        """What is not well, the worst first."""
        bad = (found for found in self.found if found.status != Status.OK)
        return sorted(bad, key=lambda found: (_ORDER.index(found.status), found.check))

    @property
    def answers(self) -> bool:
        """Whether slurmctld hears from it."""
        return not self.record.is_silent

    @property
    def verdict(self) -> Verdict:
        """How it is, in a word."""
        statuses = {found.status for found in self.found}
        if self.drained_for is not None:
            return "failing"
        if self.record.is_absent:
            return "asleep"
        if self.fresh and Status.FAIL in statuses:
            return "failing"
        is_well = self.fresh and self.answers and statuses and Status.NOT_CHECKED not in statuses
        return "well" if is_well else "unknown"

    @property
    def data(self) -> dict[str, Any]:
        """For scripts. Times are UTC. Keys are only ever added (docs/health.md)."""
        record, report = self.record, self.report
        return {
            "name": record.name,
            "health": self.verdict,
            "states": sorted(record.states),
            "reason": record.reason,
            "reason_at": None if record.reason_at is None else stamp(record.reason_at),
            "closed": record.is_closed,
            "drained_for": self.drained_for,
            "reported_at": None if report is None else stamp(report.at),
            "age_seconds": self.age,
            "fresh": self.fresh,
            "results": {
                one.check: {"status": one.status, "fault": one.fault, "message": one.message} for one in self.found
            },
            "note": note_of(record.comment),
        }


def node_of(record: Record, now: float) -> Node:
    """A node as `scontrol` has it."""
    return Node(record=record, report=decode(record.comment), now=now)


def read_nodes(kubectl: Kubectl, namespace: str) -> tuple[float, list[Node]]:
    """The controller's clock, in seconds since 1970, and all nodes in the order in which people count.

    Raises Failure.
    """
    done = in_controller(kubectl, namespace, "sh", "-c", "date +%s && scontrol show nodes --json")
    if done.returncode != 0:
        why = complaint(done)
        if "NotFound" in why:
            refuse_no_namespace(kubectl, namespace)
        hint = hint_after(why, "`slurmstack status` shows whether controller-0 runs")
        raise Failure(f"the controller could not be asked for the nodes: {why}", hint=hint)
    clock, _, printed = done.stdout.partition("\n")
    try:
        now, records = float(clock), parse_nodes(printed)
    except (ValueError, SlurmError) as error:
        raise Failure(f"what the controller says of its nodes is not understood: {error}") from error
    return now, [node_of(record, now) for record in sorted(records, key=lambda record: in_order(record.name))]


def in_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts `w-10` after `w-9`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]
