"""Nodes and jobs as slurmctld itself has them.

What `sinfo` shows is no measure: it was seen to show an idle node as mixed for as long as it was asked, under load.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

SHOW = "scontrol show nodes --all --oneliner"
"""What `node_states` reads."""

KINDS = frozenset({"CLOUD", "DYNAMIC_NORM"})
"""How a node came to be, which Slurm shows among its states."""

LIMIT_S = 180
"""For what hangs, seconds."""


def node_states(text: str) -> dict[str, frozenset[str]]:
    """States of each node by name, in what SHOW prints: `IDLE`, `DRAIN`, `DYNAMIC_NORM`, ..."""
    found = re.findall(r"^NodeName=(\S+) (?:.* )?State=(\S+)", text, re.MULTILINE)
    return {name: frozenset(states.split("+")) for name, states in found}


def is_idle(states: frozenset[str]) -> bool:
    """Whether a node has no job, takes any, and nothing else is said of it."""
    return states - KINDS == {"IDLE"}


def run_now(run: Callable[[str], str], job: str) -> None:
    """Have a job start that was held back or requeued: Slurm itself would wait for two minutes.

    It is asked until the job is no longer pending, nor its run before that one ending. In the second in which Slurm
    revokes a node's credential it puts the job off once more, and once would be too few. `run` gives what a command
    prints beside slurmctld.
    """
    deadline = time.monotonic() + LIMIT_S
    while re.search(r"JobState=(PENDING|COMPLETING)", shown := run(f"scontrol show job {job}")):
        if time.monotonic() > deadline:
            raise AssertionError(f"job {job} does not start within {LIMIT_S} s:\n{shown}")
        run(f"scontrol update jobid={job} starttime=now")
        time.sleep(0.5)
