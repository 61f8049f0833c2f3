"""This node's record in Slurm, as far as health needs it: the comment, and why it is drained.

Read from the text that `scontrol show node` prints, and not as JSON: this runs on every node, and takes a few of its
lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.common.command import Result, Runner

_TIMEOUT_SECONDS: Final = 5.0
_REASON: Final = r"(?m)^\s+Reason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$"
_COMMENT: Final = r"(?m)^\s+Comment=(.*?)\s*$"
_STATE: Final = r"(?m)^\s+State=(\S+)"


class NoRecordError(Exception):
    """slurmctld did not answer, or does not know the node."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What Slurm has on record."""

    states: frozenset[str]
    """As Slurm prints them: IDLE, MIXED, DRAIN, ..."""
    reason: str = ""
    comment: str = ""

    @property
    def is_drained(self) -> bool:
        """No new job is started on it, whoever wanted that."""
        return any(state.startswith("DRAIN") for state in self.states)

    @property
    def drained_for(self) -> str:
        """The check that the node is drained for; empty if it is not, or not for a check (watch/reason.py)."""
        match = re.match(r"health/([a-z0-9-]+)", self.reason)
        return match[1] if match and self.is_drained else ""


def read_record(name: str, runner: Runner) -> Record:
    """The record of a node. Raises NoRecordError."""
    result = runner(["scontrol", "show", "node", name], timeout=_TIMEOUT_SECONDS)
    state = re.search(_STATE, result.stdout)
    if not result.ok or state is None:
        raise NoRecordError(result.message)
    reason, comment = re.search(_REASON, result.stdout), re.search(_COMMENT, result.stdout)
    return Record(
        states=frozenset(re.split(r"[+*~#!%$@^-]+", state[1])) - {""},
        reason=reason[1] if reason else "",
        comment=comment[1] if comment else "",
    )


def write_comment(name: str, comment: str, runner: Runner) -> Result:
    """Set the comment."""
    return runner(["scontrol", "update", f"nodename={name}", f"comment={comment}"], timeout=_TIMEOUT_SECONDS)
