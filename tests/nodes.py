"""Nodes and jobs as slurmctld itself has them: in sandboxes, in guests and on Kubernetes.

What `sinfo` shows is no measure: it was seen to show an idle node as mixed for as long as it was asked, under load.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

SHOW = "scontrol show nodes --all --oneliner"
"""What `node_states` reads."""

KINDS = frozenset({"CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED"})
"""How a node came to be, and what the scheduler plans with it, which Slurm shows among its states."""

LIMIT_S = 180
"""For what hangs, seconds."""


def node_states(text: str) -> dict[str, frozenset[str]]:
    """States of each node by name, in what SHOW prints: `IDLE`, `DRAIN`, `DYNAMIC_NORM`, ..."""
    found = re.findall(r"^NodeName=(\S+) (?:.* )?State=(\S+)", text, re.MULTILINE)
    return {name: frozenset(states.split("+")) for name, states in found}


def is_idle(states: frozenset[str]) -> bool:
    """Whether a node has no job, takes any, and nothing else is said of it."""
    return states - KINDS == {"IDLE"}


def in_state(text: str, state: str = "IDLE") -> list[str]:
    """The nodes that are in this state and in no other: a drained node is not idle, nor is one that does not answer."""
    return sorted(name for name, states in node_states(text).items() if states - KINDS == {state})


_SOONER = """\
from=$(date -d "$(scontrol show job {job} --oneliner | grep -oP 'EligibleTime=\\K\\S+')" +%s)
test "$from" -gt $(($(date +%s) + 3)) && scontrol update jobid={job} starttime=now+2; true"""


def start_soon(run: Callable[[str], str], job: str) -> None:
    """Have a job that waits for a later time begin in two seconds, see `run_now`."""
    run(_SOONER.format(job=job))


def run_now(run: Callable[[str], str], job: str) -> None:
    """Have a job start that was held back or requeued: Slurm itself would wait for two minutes.

    It is asked until the job is no longer pending, nor its run before that one ending. In the second in which the
    credential of that run was revoked slurmd takes the new run for it, and the job has failed ("Job credential
    revoked"): hence the two seconds. `run` gives what a shell's command prints beside slurmctld.
    """
    deadline = time.monotonic() + LIMIT_S
    while found := re.search(r"JobState=(PENDING|COMPLETING)", shown := run(f"scontrol show job {job}")):
        if time.monotonic() > deadline:
            raise AssertionError(f"job {job} does not start within {LIMIT_S} s:\n{shown}")
        if found[1] == "PENDING":
            start_soon(run, job)
        time.sleep(0.5)
