"""Applies a plan with kubectl: server-side apply of all objects, then what left the stack is deleted.

Images that a running control plane is to get are tried first. Another release of Slurm comes after a backup, and
slurmdbd before everything else, as Slurm wants it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.markup import escape

from cli.backup.jobs import JAIL_COPY, run_job
from cli.change.jobs import Touched, first_ids
from cli.change.lock import Lock
from cli.change.owner import KEPT, PUT_BACK, REPLICAS_BEFORE, RESTORING, image_of, release_of
from cli.change.plan import APPLY, Plan, kind_of
from cli.errors import Failure
from cli.kubectl.client import (
    FIELD_MANAGER,
    Kubectl,
    as_list,
    complaint,
    component_of,
    in_controller,
    is_true,
    labels_of,
    message,
)
from cli.program.recording import Manifest
from cli.text import plain, say
from images.common.slurm_records import task_ids
from local.report import Report
from slurm.names import ACCOUNTING, BACKUP, CONTROLLER, DATABASE, GENERATED, IMAGES, POOL_LABEL

BEFORE_UPGRADE = "before-upgrade"
"""Kind of a backup of what an upgrade converts. No retention takes it away (images/backup/backups.py)."""

DATABASE_GOES_FIRST = (
    "slurmctld, workers and login nodes are as they were, and jobs go on. Correct the cause and run this again, or "
    'apply the stack file of before (docs/upgrades.md, "When an upgrade fails")'
)
"""What to do where slurmdbd did not come up."""

_OF_DAEMON = {"ConfigMap", "StatefulSet"}
_SLURMCTLD = ("StatefulSet", CONTROLLER)
_SLURMDBD = ("StatefulSet", ACCOUNTING)


def apply(kubectl: Kubectl, planned: Plan, lock: Lock, before_prune: Callable[[], None] = lambda: None) -> None:
    """Send the plan's objects to the cluster and delete what left the stack; the API server has them on return.

    `before_prune` is called where a pool leaves, when all else has been sent: if it raises, the pool stays. Raises
    Failure, with no key and nothing that uses one sent, if another command has made keys since the plan was made.
    """
    first = [item for item in planned.objects if item.cluster_scoped]
    _free_volumes(kubectl, planned)
    if not all(item.key in planned.live for item in first):
        # The namespace comes first. Volumes too: Kubernetes binds a claim at once to a volume that is reserved for it
        # and that it has seen, else at its next look, up to 15 s later.
        send(kubectl, first)
        first = []
    if not lock.is_held:  # it could not be taken before there was a namespace, whoever has made that since
        lock.take()
    _write_kept(kubectl, planned)
    delete_failed_jobs(kubectl, planned, planned.objects)
    # A pool that grows comes first: its pods start while kubectl sends all else, half a second for sixty objects.
    rest = sorted(
        (item for item in planned.objects if not item.cluster_scoped), key=lambda item: not _grows(planned, item)
    )
    send(kubectl, [*first, *rest])
    if any(POOL_LABEL in labels_of(item) for item in planned.left):
        before_prune()
    if left := [f"{kind_of(item)}/{item['metadata']['name']}" for item in planned.left]:
        kubectl.run("delete", *sorted(left), "-n", planned.namespace, "--ignore-not-found", "--wait=false")
    if planned.is_only_kept:  # the cluster is there again
        kubectl.run("label", "namespace", planned.namespace, f"{KEPT}-", f"--field-manager={FIELD_MANAGER}")


def _grows(planned: Plan, item: Manifest) -> bool:
    """Whether an object is a pool that is there and gets more nodes."""
    if item.kind != "StatefulSet" or item.key not in planned.live or POOL_LABEL not in labels_of(item.document):
        return False
    return bool(planned.live[item.key]["spec"].get("replicas", 1) < item.document["spec"].get("replicas", 1))


def send(kubectl: Kubectl, objects: Sequence[Manifest]) -> None:
    """Have these objects in the cluster, and nothing else changed."""
    if objects:
        kubectl.run(*APPLY, "-f", "-", stdin=as_list([item.document for item in objects]))


def _free_volumes(kubectl: Kubectl, planned: Plan) -> None:
    """Let static volumes be claimed again whose claims went with the namespace: a `destroy` was cut short."""
    for item in planned.objects:
        present = planned.live.get(item.key, {}) if item.kind == "PersistentVolume" else {}
        if present.get("status", {}).get("phase") == "Released":
            change = json.dumps([{"op": "remove", "path": "/spec/claimRef/uid"}])
            kubectl.run("patch", "persistentvolume", item.name, "--type=json", "-p", change)


def _write_kept(kubectl: Kubectl, planned: Plan) -> None:
    """Keep new keys before anything uses them: an apply that is interrupted later finds them again.

    Those that others have made since the plan was made are never overwritten: raises Failure then.
    """
    if not planned.kept.changed:
        return
    metadata = {"name": GENERATED, "namespace": planned.namespace}
    read = planned.inside.get(("Secret", GENERATED))
    if read is not None:
        metadata["resourceVersion"] = read["metadata"]["resourceVersion"]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "stringData": planned.kept.values,
    }
    how = APPLY if read is not None else ("create", f"--field-manager={FIELD_MANAGER}")
    done = kubectl.run(*how, "-f", "-", stdin=json.dumps(secret), check=False)
    if "(AlreadyExists)" in done.stderr or "the object has been modified" in done.stderr:
        raise Failure(
            f"another `slurmstack up` has made keys for the cluster in namespace {planned.namespace!r} meanwhile",
            hint="run this again: `slurmstack preview` shows whether there is anything left to do",
        )
    if done.returncode != 0:
        raise Failure(message(done.stderr))


def delete_failed_jobs(kubectl: Kubectl, planned: Plan, objects: Sequence[Manifest]) -> None:
    """Delete those jobs that failed: they would stay failed. One with another specification has another name."""
    failed = [item.name for item in objects if item.kind == "Job" and is_true(planned.live.get(item.key, {}), "Failed")]
    if failed:
        kubectl.run("delete", "job", *failed, "-n", planned.namespace, "--ignore-not-found", "--cascade=foreground")


def upgraded_first(planned: Plan) -> list[list[Manifest]]:
    """What is to be up before all else is sent: slurmdbd, where it or slurmctld gets another release; else nothing.

    Then the database where it gets another image: no slurmctld of a new release starts while it is away, and no data is
    converted by it before the upgrade has begun well.

    One that has it already may convert yet, or fail: an earlier run has ended there. Slurm wants it no older than
    slurmctld, which would not talk to it. While it converts its database, which can take an hour, the old slurmctld
    goes on and keeps the records. All else may come at once: workers get their new pods by `elastic`, whose commands a
    slurmctld of an older release does not answer.
    """
    if _SLURMDBD not in planned.live or not (_gets_another(planned, _SLURMDBD) or is_upgrade(planned)):
        return []
    both = [found[at] for found in (planned.live, planned.wanted) if (at := ("StatefulSet", DATABASE)) in found]
    if len(both) == 2 and not _ready(planned, DATABASE):  # slurmdbd waits for it; an earlier run has ended here
        steps = [DATABASE, ACCOUNTING]
    else:
        steps = [ACCOUNTING, *([DATABASE] if len(set(map(image_of, both))) > 1 else [])]
    return [
        [item for item in planned.objects if item.kind in _OF_DAEMON and component_of(item.document) == name]
        for name in steps
    ]


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
    env = {"KIND": BEFORE_UPGRADE, "PARTS": " ".join(parts)}
    try:
        output = run_job(kubectl, planned.namespace, BACKUP, report, env=env, without={JAIL_COPY})
    except Failure as failure:
        raise Failure(
            f"no backup could be made before the upgrade, and nothing was touched: {failure}",
            hint=f"correct that, or go on without one: --no-backup. {failure.hint}".rstrip(". "),
        ) from failure
    found = re.search(r"backup (\d{8}T\d{6}Z)", output)
    return found[1] if found else ""


def failed_upgrade_hint(saved: str, *, backups: bool) -> str:
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


def _gets_another(planned: Plan, which: tuple[str, str]) -> bool:
    """Whether a StatefulSet that is there, and stays, may get another release. Of tags of its own nobody can tell."""
    if which not in planned.live or which not in planned.wanted:
        return False
    both = planned.live[which], planned.wanted[which]
    before, after = map(release_of, both)
    return before != after if before and after else len(set(map(image_of, both))) > 1


# What either way to apply does beside the objects


def cancel_lost_jobs(kubectl: Kubectl, namespace: str, lost: Iterable[Touched]) -> None:
    """Cancel the jobs that the change would end or keep from ever starting, and no other; says which."""
    # scancel does not understand all that squeue prints of an array's tasks, and others of the array may be elsewhere.
    jobs = tuple(lost)
    waiting = {task for item in jobs if not item.nodes for task in task_ids(item.id)}
    running = {item.id for item in jobs if item.nodes}
    for ids, state in ((waiting, ["--state=pending"]), (running, [])):
        if ids:
            scancel = ("xargs", "-n", "500", "scancel", *state)
            done = in_controller(kubectl, namespace, *scancel, stdin="\n".join(sorted(ids)), seconds=600)
            if done.returncode != 0:  # one that has ended meanwhile, as a rule
                say(f"note: {escape(plain(complaint(done)))}")
    if jobs:
        say(f"cancelled: {escape(first_ids(jobs))}")


def forget_restore(kubectl: Kubectl, namespace: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """An apply has started what a restore has left stopped: a pool of no nodes would be taken for one that it stops."""
    for item in objects:
        noted = {REPLICAS_BEFORE, PUT_BACK, RESTORING} & set(item["metadata"].get("annotations") or {})
        if noted and item["kind"] in {"StatefulSet", "Deployment"}:
            workload = f"{item['kind'].lower()}/{item['metadata']['name']}"
            removals = [f"{note}-" for note in sorted(noted)]
            kubectl.run("annotate", workload, "-n", namespace, *removals, f"--field-manager={FIELD_MANAGER}")


# Images

NOTHING_TOUCHED = (
    "nothing runs with these images, and what runs goes on. Correct `images` in the stack file, or push what it names "
    "(docs/images.md), and run this again"
)


def image_trial(planned: Plan) -> list[Manifest]:
    """The job that tries the images, where a control plane runs that may get them; else nothing."""
    if not _ready(planned, CONTROLLER, ACCOUNTING, DATABASE):
        return []
    jobs = [item for item in planned.objects if item.kind == "Job" and component_of(item.document) == IMAGES]
    return [job for job in jobs if not is_true(planned.live.get(job.key, {}), "Complete")]


def _ready(planned: Plan, *components: str) -> bool:
    """Whether those of the components that are there run and are ready, and slurmctld is there."""
    sets = [planned.live[at] for name in components if (at := ("StatefulSet", name)) in planned.live]
    pods = [(item["spec"]["replicas"], item.get("status", {}).get("readyReplicas", 0)) for item in sets]
    return ("StatefulSet", CONTROLLER) in planned.live and all(0 < wanted <= ready for wanted, ready in pods)
