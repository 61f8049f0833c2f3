"""Elastic pools for which no machines came, and those that may have fewer nodes just now."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cli.doctor.cluster.facts import Facts
from cli.doctor.cluster.findings import Finding
from images.common.slurm_node import IN_WINDOW, NO_CAPACITY, SET_ASIDE

_PAUSED = re.compile(re.escape(NO_CAPACITY) + r", (?P<tries>\d+) in vain, again at (?P<until>\S+)")


def find(facts: Facts) -> Iterator[Finding]:
    """Pools that pause, those that are set aside until a person resumes them, and those in a window."""
    for name in facts.pools:
        nodes = [node for node in facts.nodes if node.name.rpartition("-")[0] == name and "DRAIN" in node.states]
        aside = [node for node in nodes if node.reason.startswith(SET_ASIDE)]
        held = [node for node in nodes if node.reason.startswith(IN_WINDOW)]
        paused = [found for node in nodes if (found := _PAUSED.match(node.reason))]
        events = facts.kubectl("get events --field-selector=reason=FailedScheduling")
        look = f"see why no machine came: {events}, and the log of what adds machines (the cloud's autoscaler)"
        if aside:
            resume = facts.slurm(f"scontrol update nodename={','.join(node.name for node in aside)} state=resume")
            yield Finding(
                about=f"pool {name}",
                severity="error",
                cause=f"pool {name} is set aside: ten times in a row no machine came for its nodes",
                evidence=(f"{len(aside)} nodes: {aside[0].reason}",),
                mend=f"{look}; then {resume}",
                weight=len(aside),
            )
        elif paused:
            last = max(paused, key=lambda found: int(found["tries"]))
            yield Finding(
                about=f"pool {name}",
                severity="warning",
                cause=f"pool {name} pauses: {last['tries']} times in a row no machine came for its nodes in time; "
                f"it tries again at {last['until']}",
                evidence=(f"{len(paused)} nodes: {last[0]}",),
                mend=look,
                weight=len(paused),
            )
        elif held:
            window = held[0].reason.removeprefix(IN_WINDOW).strip()
            yield Finding(
                about=f"pool {name}",
                severity="note",
                cause=f"pool {name} may have fewer nodes just now, in its window {window}",
                evidence=(f"{len(held)} nodes: {held[0].reason}",),
                mend=f"nothing: jobs wait until it ends; or raise its max (worker_nodes.{name}.windows), slurmstack up",
                weight=len(held),
            )
