"""The jail: the shared root file system, and the users in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cli.doctor.cluster.facts import Facts, Owner, Pod
from cli.doctor.cluster.findings import Finding

_FULL = 3
"""Exit status of `populate` where the volume is too small (images/jail/populate.py)."""

_REFUSED = 2
"""The same where the volume has files that are not ours."""

_HANGS = re.compile(r"did not end in|of an earlier run does not end")
"""What a check says that was ended, or is not begun again (images/health/runner.py): it is "not checked" then."""


def find(facts: Facts) -> Iterator[Finding]:
    """All about the jail."""
    for owner in facts.owners:
        pods = [pod for pod in facts.pods if pod.owner == owner.name]
        if owner.kind == "Job" and owner.component == "jail" and not owner.is_done:
            yield _populating(facts, owner, pods)
        elif owner.kind == "Job" and owner.component == "users" and owner.failed:
            yield Finding(
                about="users",
                severity="error",
                cause="the users of the stack file could not be made in the jail",
                evidence=(owner.failed,),
                mend=f"{facts.kubectl(f'logs job/{owner.name}')}; correct slurmstack:users, then `slurmstack up`",
                after=("jail",),
            )
    yield from _checks(facts)


def _populating(facts: Facts, owner: Owner, pods: list[Pod]) -> Finding:
    ended = max((item for pod in pods for item in pod.containers if item.ended), key=lambda c: c.ended_at, default=None)
    code = ended.code if ended else 0
    logs = facts.kubectl(f"logs job/{owner.name} --tail 5")
    unplaced = next((pod.unschedulable for pod in pods if pod.unschedulable), "")
    waiting = [item for pod in pods for item in pod.containers if item.waiting not in {"", "ContainerCreating"}]
    if code == _FULL:
        cause, mend = "the jail is half populated: its volume is full", "raise jail.size, then `slurmstack up`"
    elif code == _REFUSED or owner.failed:
        cause = "the jail could not be populated: its volume has files of somebody else, or is no shared volume, or "
        cause += "jail.root or jail.homes does not fit"
        mend = f"{logs}; use an empty volume, or empty this one, or do as the log says, then `slurmstack up`"
    elif unplaced:
        cause, mend = "the jail is empty: the pod that fills it cannot be placed", facts.kubectl("get pvc,events")
    elif waiting:
        cause, mend = f"the jail is not populated: its pod does not start ({waiting[0].waiting})", logs
    else:
        cause, mend = "the jail is being populated; login and worker nodes wait until it is whole", logs
    evidence = (owner.failed, unplaced, *(item.message for item in waiting[:1]))
    return Finding(
        about="jail",
        severity="error" if code or owner.failed or unplaced or waiting else "note",
        cause=cause,
        evidence=tuple(filter(None, evidence)),
        mend=mend,
        after=("claim jail",),
        weight=15,
    )


def _checks(facts: Facts) -> Iterator[Finding]:
    """Nodes that all say the same of the jail are one finding."""
    full: dict[str, str] = {}
    slow: dict[str, str] = {}
    for node in facts.nodes:
        for found in node.checked.findings if node.checked.fresh else ():
            if found.status == "fail" and found.check == "disks" and "/jail" in found.message:
                full[node.name] = found.message
            elif found.check == "filesystem" and (found.status == "fail" or _HANGS.search(found.message)):
                slow[node.name] = found.message
    homes = all("/jail/home:" in message for message in full.values())
    what, key = ("the volume of homes", "jail.homes.size") if homes else ("the jail", "jail.size")
    free = f"delete files (`sudo du -xsh /home/*` on a login node), or raise {key} and `slurmstack up`"
    measure = f"slurmstack health run filesystem --node {next(iter(slow), '')}; look at the storage behind it"
    for check, said, cause, mend in (
        ("disks", full, f"{what} is full: jobs cannot write, and its nodes are drained", free),
        ("filesystem", slow, "the jail's file system is slow or hangs", measure),
    ):
        if said:
            lines = [f"{name}: {message}" for name, message in said.items()]
            yield Finding(
                about=f"jail {check}",
                severity="error",
                cause=cause,
                evidence=(*lines[:4], *([f"and {len(lines) - 4} more nodes"] if len(lines) > 4 else [])),
                mend=mend,
                weight=10 + len(said),
            )
