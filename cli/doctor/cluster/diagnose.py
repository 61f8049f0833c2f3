"""A Snapshot in, findings out: of the whole cluster, of one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType

from cli.doctor.cluster.findings import Finding, Severity
from cli.doctor.cluster.rules import configuration, jobs, nodes, pods
from cli.status.job import KnownJob
from cli.status.snapshot import Snapshot

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}

_THEMES = (pods, nodes, configuration, jobs)
"""What is nearer to the machines comes first: of two that are equally bad it is more often the cause."""


def _found(cluster: Snapshot, themes: Iterable[ModuleType]) -> list[Finding]:
    return [item for theme in themes for item in theme.find(cluster)]


def diagnose(cluster: Snapshot) -> tuple[Finding, ...]:
    """All that is wrong with the cluster, the most likely cause of the worst first."""
    return ranked(_found(cluster, _THEMES))


def diagnose_job(cluster: Snapshot, known: KnownJob) -> tuple[Finding, ...]:
    """What there is to say of a job, and what is ill that keeps it. Empty if nobody knows the job."""
    said = list(jobs.explain(cluster, known))
    if not said:
        return ()
    causes = {name for item in said for name in item.after}
    found = ranked([*_found(cluster, _THEMES[:-1]), *said])
    about = {item.about for item in said}
    texts = {item.cause for item in said}
    return tuple(item for item in found if item.about in about | causes or texts & set(item.consequences))


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Consequences are folded under their causes; then the worst and heaviest first, else as they came."""
    first = {item.about: item for item in reversed(findings)}
    below: dict[int, list[Finding]] = defaultdict(list)
    for item in findings:
        below[id(_root(item, first))].append(item)
    whole = [_with(item, [one for one in below[id(item)] if one is not item]) for item in findings if id(item) in below]
    return tuple(sorted(whole, key=lambda item: (_RANK[item.severity], -item.weight)))


def _root(item: Finding, first: dict[str, Finding]) -> Finding:
    """What it follows from in the end. Two that explain each other are not followed for ever."""
    seen = {id(item)}
    while True:
        above = next((first[name] for name in item.after if name in first and id(first[name]) not in seen), None)
        if above is None:
            return item
        seen.add(id(above))
        item = above


def _with(item: Finding, below: Sequence[Finding]) -> Finding:
    """With what follows from it; it is as bad as the worst of that."""
    worst = min((item, *below), key=lambda one: _RANK[one.severity]).severity
    return replace(
        item,
        severity=worst,
        weight=item.weight + sum(max(1, one.weight) for one in below),
        consequences=tuple(one.cause for one in below),
    )
