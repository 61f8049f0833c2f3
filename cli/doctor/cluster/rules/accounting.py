"""slurmdbd and its database."""

from __future__ import annotations

from collections.abc import Iterator

from cli.doctor.cluster.facts import Facts
from cli.doctor.cluster.findings import Finding
from cli.kubectl.client import SILENT_SLURMDBD
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, DATABASE

_BEHIND = 200
"""Records that wait in slurmctld for slurmdbd; some always do for a moment."""


def find(facts: Facts) -> Iterator[Finding]:
    """All about accounting."""
    if facts.slurmdbd_answers is False:
        waiting = f"{facts.records_waiting} records wait in slurmctld, and arrive when it is back"
        yield Finding(
            about="accounting",
            severity="error",
            cause=f"{SILENT_SLURMDBD}: sacct, sacctmgr and limits by account do not work; jobs go on",
            evidence=(waiting,) if facts.records_waiting else (),
            mend=facts.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20"),
            after=(f"pod {ACCOUNTING_HOST}", f"owner {ACCOUNTING}", f"pod {DATABASE}-0", "slurmctld"),
            weight=5,
        )
    elif facts.records_waiting >= _BEHIND:
        yield Finding(
            about="accounting",
            severity="warning",
            cause=f"the database is behind: {facts.records_waiting} records of jobs wait in slurmctld",
            evidence=("slurmctld keeps 1,000,000 of them (MaxDBDMsgs, as we set it), then it drops some",),
            mend=facts.kubectl(f"logs {ACCOUNTING_HOST} -c {ACCOUNTING} --tail 20")
            + f"; {facts.kubectl(f'logs {DATABASE}-0 --tail 20')}",
            after=(f"pod {DATABASE}-0",),
            weight=2,
        )
