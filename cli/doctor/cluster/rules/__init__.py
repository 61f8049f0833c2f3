"""A Snapshot in, findings out: of the whole cluster, of one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from cli.doctor.cluster.findings import Finding, ranked
from cli.doctor.cluster.rules import configuration, jobs, nodes, pods
from cli.status.snapshot import KnownJob, Snapshot

_THEMES = (pods, nodes, configuration, jobs)
"""What is nearer to the machines comes first: of two that are equally bad it is more often the cause."""


def _found(cluster: Snapshot, themes: Iterable[ModuleType]) -> list[Finding]:
    return [item for theme in themes for item in theme.find(cluster)]


def diagnose(cluster: Snapshot) -> tuple[Finding, ...]:
    """All that is wrong with the cluster, the most likely cause of the worst first."""
    namespace = configuration.deleted_namespace(cluster)
    return (namespace,) if namespace else ranked(_found(cluster, _THEMES))  # all else goes with it


def diagnose_job(cluster: Snapshot, known: KnownJob, errors: Sequence[str] = ()) -> tuple[Finding, ...]:
    """What there is to say of a job, and what is ill that keeps it. Empty if nobody knows the job.

    `errors`: what its nodes have said of it.
    """
    explained = list(jobs.explain(cluster, known, errors))
    if not explained:
        return ()
    causes = {name for item in explained for name in item.after}
    found = ranked([*_found(cluster, _THEMES[:-1]), *explained])
    about = {item.about for item in explained}
    texts = {item.cause for item in explained}
    return tuple(item for item in found if item.about in about | causes or texts & set(item.consequences))
