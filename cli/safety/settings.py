"""Slurm's settings whose change hurts the jobs that are there. One table: what is found out is added here.

Tried with 24.11.5 and harmless to running and waiting jobs: SelectTypeParameters, MaxArraySize, MaxJobId, MaxNodeCount,
GresTypes, Licenses, JobRequeue; to running ones: ProctrackType, TaskPlugin, JobAcctGatherType, SchedulerType,
PriorityType, PreemptType, InactiveLimit, SlurmdTimeout. Another SelectType is rejected by slurmctld, a MaxNodeCount
below the number of nodes by the configuration agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.safety.queue import Job, task_ids


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What the change of one setting does."""

    hurts: Callable[[str, str], bool]
    """Whether a change from one value to another may hurt a job."""
    ended: Callable[[str, Sequence[Job]], Iterator[Job]]
    """Which of the jobs the new value ends."""
    why: str


def _over_the_count(limit: str, jobs: Sequence[Job]) -> Iterator[Job]:
    """The newest jobs: slurmctld stops to load its state there, and drops the rest without a word.

    So measured with 24.11.5; 26.05.5 keeps one more. Each task of an array counts. Jobs that have just ended count too
    for some minutes, but nobody sees them here.
    """
    before = 0
    for job in sorted(jobs, key=lambda item: int(re.split(r"\D", item.id)[0])):
        if before >= int(limit) - 1:
            yield job
        before += sum(1 for _ in task_ids(job.id))


RULES: Mapping[str, Rule] = {
    "MaxJobCount": Rule(
        hurts=lambda old, new: old.isdigit() and new.isdigit() and int(new) < int(old),
        ended=_over_the_count,
        why="Slurm drops the jobs that are over it",
    ),
}
"""By the setting's name."""


def hurting(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, Rule]:
    """The rules that a change of settings (names in lower case) calls for, by what is said of it."""
    return {
        f"{name} becomes {new[key]}: {rule.why}": rule
        for name, rule in RULES.items()
        if (key := name.lower()) in old and key in new and rule.hurts(old[key], new[key])
    }


def ended_by_settings(old: Mapping[str, str], new: Mapping[str, str], jobs: Sequence[Job]) -> dict[str, str]:
    """Why jobs would be ended by a change of settings, by the job's id."""
    return {
        job.id: why
        for why, rule in hurting(old, new).items()
        for job in rule.ended(new[why.partition(" ")[0].lower()], jobs)
    }
