"""Another release of Slurm: a backup, then slurmdbd before everything else, as Slurm wants it; and the way back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cli.backup.jobs import run_job
from cli.change.apply import Plan
from cli.change.diff import APPLY, key
from cli.change.in_place import release_of
from cli.errors import Failure
from cli.kubectl.client import Kubectl, as_list
from cli.program.manifests import Manifest
from local.report import Report
from slurm.names import ACCOUNTING, BACKUP, CONTROLLER

BEFORE_UPGRADE = "before-upgrade"
"""Kind of a backup of what an upgrade converts. No retention takes it away (images/backup/backups.py)."""

DATABASE_GOES_FIRST = (
    "slurmctld, workers and login nodes are as they were, and jobs go on. Correct the cause and run this again, or "
    'apply the stack file of before (docs/upgrades.md, "When an upgrade fails")'
)
"""What to do where slurmdbd did not come up."""

_SLURMCTLD = ("StatefulSet", CONTROLLER)
_SLURMDBD = ("StatefulSet", ACCOUNTING)
_COMPONENT = "app.kubernetes.io/component"
_PART_OF = "applyset.kubernetes.io/part-of"
"""Label of what a later apply may prune. It stays."""


def upgraded_first(planned: Plan) -> list[Manifest]:
    """What is to be up before all else is sent: slurmdbd, where it or slurmctld gets another release; else nothing.

    One that has it already may convert yet, or fail: an earlier run has ended there. Slurm wants it no older than
    slurmctld, which would not talk to it. While it converts its database, which can take an hour, the old slurmctld
    goes on and keeps the records. All else may come at once: workers get their new pods by `elastic`, whose commands a
    slurmctld of an older release does not answer.
    """
    sent = [item for item in planned.objects if _component(item.document) == ACCOUNTING]
    present = planned.live.get(_SLURMDBD)
    if not sent or present is None or not (_gets_another(planned, _SLURMDBD) or is_upgrade(planned)):
        return []
    part_of = {name: value for name, value in _labels(present).items() if name == _PART_OF}
    return [_labelled(item, part_of) for item in sent if item.kind in {"ConfigMap", "StatefulSet"}]


def is_upgrade(planned: Plan) -> bool:
    """Whether a slurmctld that runs gets another release."""
    there = planned.live.get(_SLURMCTLD)
    return there is not None and there["spec"].get("replicas") != 0 and _gets_another(planned, _SLURMCTLD)


def save_first(kubectl: Kubectl, planned: Plan, report: Report) -> str:
    """Save the queue and accounting's records; returns the backup's id. Nothing where slurmdbd converts them already.

    Not the jail, which no upgrade touches and which may take hours. Raises Failure, with nothing applied.
    """
    database = ("StatefulSet", ACCOUNTING) in planned.inside
    if database and not _gets_another(planned, _SLURMDBD):
        return ""
    parts = ["state", *(["database"] if database else [])]
    told, only = {"KIND": BEFORE_UPGRADE, "PARTS": " ".join(parts)}, {f"backup-{part}" for part in parts}
    try:
        said = run_job(kubectl, planned.namespace, BACKUP, report, env=told, only=only)
    except Failure as failure:
        raise Failure(
            f"no backup could be made before the upgrade, and nothing was touched: {failure}",
            hint=f"correct that, or go on without one: --no-backup. {failure.hint}".rstrip(". "),
        ) from failure
    found = re.search(r"backup (\d{8}T\d{6}Z)", said)
    return found[1] if found else ""


def way_back(saved: str, *, backups: bool) -> str:
    """What to do where the rest of an upgrade fails. `saved`: the backup that this run has made first, if it has."""
    if not backups:
        return "correct the cause and run this again: there is no backup, and so no way back"
    return (
        "correct the cause and run this again; or to go back, write the old slurm.version and jail.root into the stack "
        f"file again, `slurmstack restore --what state --what database --leave-stopped --at {saved or 'ID'}`, and "
        f"`slurmstack up`{'' if saved else ' (`slurmstack backup list` has the ID)'}. "
        'docs/upgrades.md, "When an upgrade fails"'
    )


@contextmanager
def hinting(hint: str) -> Iterator[None]:
    """Add a hint to a failure; none if it is empty."""
    try:
        yield
    except Failure as failure:
        failure.hint = "; ".join(filter(None, (failure.hint, hint)))
        raise


def send(kubectl: Kubectl, namespace: str, objects: Sequence[Manifest]) -> None:
    """Have these objects in the cluster, and nothing else changed."""
    kubectl.run(*APPLY, "-n", namespace, "-f", "-", stdin=as_list([item.document for item in objects]))


def _gets_another(planned: Plan, which: tuple[str, str]) -> bool:
    """Whether a StatefulSet that is there, and stays, gets another release."""
    there = planned.live.get(which)
    wanted = next((item.document for item in planned.objects if key(item.document) == which), None)
    return there is not None and wanted is not None and _is_another(there, wanted)


def _is_another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether an image may have another release. Of one with a tag of its own nobody can tell."""
    before, after = release_of(old), release_of(new)
    return _image(old) != _image(new) if not before or not after else before != after


def _image(item: Mapping[str, Any]) -> str:
    return str(item["spec"]["template"]["spec"]["containers"][0]["image"])


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _component(item: Mapping[str, Any]) -> str | None:
    return _labels(item).get(_COMPONENT)


def _labelled(item: Manifest, more: Mapping[str, str]) -> Manifest:
    metadata = item.document["metadata"]
    labels = {**_labels(item.document), **more}
    return replace(item, document={**item.document, "metadata": {**metadata, "labels": labels}})
