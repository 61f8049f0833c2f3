"""A rehearsal: a backup is put back into a cluster that is thrown away, started, compared, and removed."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cli.backup import throwaway, verdict
from cli.backup.jobs import run_job, statuses
from cli.backup.restore import RESTORED_BY, chosen
from cli.backup.verdict import Outcome, Shown, told_by
from cli.change.diff import APPLY
from cli.change.lock import held
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, complaint, in_controller
from cli.stack import Stack
from local.report import Report, Step
from slurm.local_cluster import local_directory
from slurm.names import ACCOUNTING, BACKUPS, CONTROLLER, DATABASE, REHEARSALS, RESTORE

LEASE: Final = "slurmstack-rehearsal"
"""Only one at a time; `up` does not wait for it."""

_POLL: Final = 0.5

_READY_SECONDS: Final = 600.0
"""For MariaDB on an empty volume, and for slurmctld."""

_CONVERTING_SECONDS: Final = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""

_ANSWER_SECONDS: Final = 120.0

_GONE_SECONDS: Final = 300.0
"""For the namespace to go with its pods and volumes."""

_UNSCHEDULED_SECONDS: Final = 60.0
"""After which what the scheduler says of a pod is an answer."""

_RESTARTS: Final = 2
"""Of a container that ends again and again."""

_KEPT: Final = 50
"""Outcomes that are kept, of the last backups."""

_SPARE: Final = 1.2
"""Room on the local machine, as a multiple of what the backup has."""

_MARKER: Final = ".slurmstack-rehearsal"
"""File in the directory of a rehearsal's volumes on the local machine: it may be removed."""

_NO_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"})


class Rehearsal:
    """One rehearsal of one cluster's backups. Whatever happens, nothing of it stays."""

    def __init__(
        self, kubectl: Kubectl, stack: Stack, report: Report, *, version: str | None = None, tag: str = ""
    ) -> None:
        """`version`: another release of Slurm, with images of this tag (default: as they are built)."""
        self._kubectl = kubectl
        self._stack = stack
        self._report = report
        self.sections = throwaway.sections_for(stack, version=version, tag=tag)
        self._of = stack.config.cluster.namespace
        self._namespace = str(self.sections["cluster"]["namespace"])
        self._version = str(self.sections["slurm"]["version"])

    def run(self, *, at: str = "", jail: bool = True) -> Outcome:
        """Rehearse a backup; `at` as for a restore. Raises Failure where it could not be put back or started."""
        accounting = self._stack.config.accounting.enabled
        parts = ["state", *(["database"] if accounting else []), *(["jail"] if jail else [])]
        with held(self._kubectl, self._of, "rehearse", self._report, timeout=20, lease=LEASE):
            self._remove_left()
            backup = chosen(self._kubectl, self._of, parts, at, self._report)
            outcome = Outcome(backup=str(backup["id"]), version=self._version)
            self._refuse_no_room(sum(int(backup["parts"][part]["bytes"]) for part in parts))
            begun = time.monotonic()
            try:
                self._go(outcome, parts)
            except Failure as failure:
                outcome.failed = failure.message
                raise
            finally:
                outcome.seconds["total"] = time.monotonic() - begun
                try:
                    self._remove()
                finally:  # what stays of it is no matter of the backup
                    if self._version == self._stack.config.slurm.version and (outcome.found or outcome.failed):
                        self._keep(outcome)
        return outcome

    def _go(self, outcome: Outcome, parts: Sequence[str]) -> None:
        with self._report.step(f"Making {self._namespace}") as step:
            self._make(jail="jail" in parts)
            if "database" in parts:
                self._await_ready(DATABASE, _READY_SECONDS, step)
        told = self._put_back(outcome, parts)
        with self._report.step("Starting Slurm") as step:
            if "database" in parts:
                self._start(ACCOUNTING)
                outcome.seconds[ACCOUNTING] = self._await_ready(ACCOUNTING, _CONVERTING_SECONDS, step)
            self._start(CONTROLLER)
            outcome.seconds["slurmctld"] = self._await_ready(CONTROLLER, _READY_SECONDS, step)
            shown = self._shown(told.get("database"))
        verdict.judge(outcome, told, shown)

    # --- What is made, and removed --------------------------------------------------------------------------------

    def _make(self, *, jail: bool) -> None:
        objects = throwaway.objects_for(self.sections, of=self._of, stack=self._stack.name, jail=jail)
        secrets = self._kubectl.items("secret", *throwaway.borrowed(objects), "-n", self._of)
        copies = [_copy(item, self._namespace) for item in secrets]
        if (place := self._local_place()) is not None:
            if place.exists():
                raise Failure(f"{place} is there, and is not of a rehearsal", hint="a cluster of that name left it")
            place.mkdir(parents=True)
            (place / _MARKER).touch()
        (namespace, *rest) = [item.document for item in objects]
        self._kubectl.run("create", f"--field-manager={FIELD_MANAGER}", "-f", "-", stdin=json.dumps(namespace))
        self._kubectl.run(*APPLY, "-f", "-", stdin=as_list([*copies, *rest]))

    def _remove_left(self) -> None:
        """What one that was killed has left. Raises Failure where the namespace is somebody else's."""
        if (mine := self._is_mine()) is False:
            raise Failure(
                f"the namespace {self._namespace} is there, and is not of a rehearsal of {self._of}",
                hint="a rehearsal needs that name: rename the other one",
            )
        place = self._local_place()
        if mine or (place is not None and (place / _MARKER).exists()):
            self._remove()

    def _is_mine(self) -> bool | None:
        """Whether the namespace is of a rehearsal of this cluster; None where there is none."""
        for found in self._kubectl.items("namespace", self._namespace):
            return bool((found["metadata"].get("labels") or {}).get(throwaway.OF) == self._of)
        return None

    def _remove(self) -> None:
        if self._is_mine() is False:
            return
        with self._report.step(f"Removing {self._namespace}"):
            self._delete_objects()
            place = self._local_place()
            if place is not None and (place / _MARKER).exists():
                # Trees in it may be deeper than Python's own way to remove them goes. The marker goes last.
                inner = [str(path) for path in place.iterdir() if path.name != _MARKER]
                done = subprocess.run(["rm", "-rf", "--", *inner], check=False, capture_output=True, text=True)
                if done.returncode != 0:
                    raise Failure(f"{place} cannot be removed: {done.stderr.strip()[-300:]}")
                shutil.rmtree(place)

    def _delete_objects(self) -> None:
        """The namespace with all in it, and static volumes, which are in none. Raises Failure where they stay."""
        volumes = [
            str(item["metadata"]["name"])
            for item in self._kubectl.items("persistentvolume", "-l", "app.kubernetes.io/part-of=slurmstack")
            if item["spec"].get("claimRef", {}).get("namespace") == self._namespace
        ]
        here, soon = ("-n", self._namespace), ("--ignore-not-found", "--wait=false")
        # Kubernetes comes to what is in a namespace that goes after five seconds only.
        self._kubectl.run("delete", "statefulset,job,persistentvolumeclaim", "--all", *here, *soon)
        if volumes:
            self._kubectl.run("delete", "persistentvolume", *volumes, *soon)
        self._kubectl.run("delete", "namespace", self._namespace, *soon)
        until = time.monotonic() + _GONE_SECONDS
        while self._kubectl.items("namespace", self._namespace) or (
            volumes and self._kubectl.items("persistentvolume", *volumes)
        ):
            if time.monotonic() > until:
                raise Failure(
                    f"{self._namespace} is still there after {_GONE_SECONDS:g} s",
                    hint=f"`{self._kubectl.shown} describe namespace {self._namespace}` says why; the next rehearsal "
                    "removes it",
                )
            time.sleep(_POLL)

    def _local_place(self) -> Path | None:
        """Where the local cluster keeps the volumes of the rehearsal; None on any other."""
        if not self._stack.config.cloud.is_local:
            return None
        return local_directory() / "volumes" / self._namespace

    def _refuse_no_room(self, needed: int) -> None:
        """On the local cluster all volumes are directories of one disk. Elsewhere a claim has its own size."""
        if self._local_place() is None:
            return
        free = shutil.disk_usage(local_directory()).free
        if free < needed * _SPARE:
            raise Failure(
                f"the backup has {needed / 2**30:.1f} GiB, and {local_directory()} has {free / 2**30:.1f} GiB of room",
                hint="make room, or rehearse --without-jail",
            )

    # --- Putting back, and starting -------------------------------------------------------------------------------

    def _put_back(self, outcome: Outcome, parts: Sequence[str]) -> dict[str, dict[str, Any]]:
        told = {"WHAT": " ".join(parts), "AT": outcome.backup, "REHEARSAL": "yes"}
        only = {"restore-choose", *(name for part in parts for name in RESTORED_BY[part] if name != "users")}
        try:
            said = run_job(
                self._kubectl, self._namespace, RESTORE, self._report, name=RESTORE, env=told, only=only, anywhere=True
            )
        except Failure as failure:
            failure.hint = failure.hint or f"backup {outcome.backup} could not be put back; the cluster was not touched"
            raise
        for pod in self._kubectl.items("pod", "-n", self._namespace, "-l", f"job-name={RESTORE}"):
            for status in statuses(pod):
                part = status["name"].removeprefix("restore-")
                if part in parts:
                    ended = status.get("state", {}).get("terminated", {})
                    outcome.seconds[part] = (
                        _seconds(ended["startedAt"], ended["finishedAt"]) if "finishedAt" in ended else 0.0
                    )
        return told_by(said)

    def _start(self, name: str) -> None:
        change = json.dumps({"spec": {"replicas": 1}})
        self._kubectl.run("patch", "statefulset", name, "-n", self._namespace, "--type=merge", "-p", change)

    def _await_ready(self, name: str, limit: float, step: Step) -> float:
        """Wait for a StatefulSet's pod; how long its containers ran until then. Raises Failure."""
        begun = time.monotonic()
        pod = f"{name}-0"
        while True:
            (found,) = self._kubectl.items("pod", pod, "-n", self._namespace) or [{}]
            conditions = {item["type"]: item for item in found.get("status", {}).get("conditions", [])}
            if (ready := conditions.get("Ready", {})).get("status") == "True":
                started = [
                    state["running"]["startedAt"]
                    for status in found["status"]["containerStatuses"]
                    if "running" in (state := status.get("state", {}))
                ]
                return max(0.0, _seconds(min(started), ready["lastTransitionTime"]))
            waited = time.monotonic() - begun
            if found:
                self._refuse_trouble(found, conditions, waited)
            elif waited > _UNSCHEDULED_SECONDS / 2:
                self._refuse_never_made(name)
            if waited > limit:
                raise Failure(f"{name} was not ready within {limit / 60:g} minutes", hint=self._said(pod))
            step.progress(0, 0, f"waiting for {name}")
            time.sleep(_POLL)

    def _refuse_trouble(self, pod: Mapping[str, Any], conditions: Mapping[str, Any], waited: float) -> None:
        """Raise Failure where a pod will not start by waiting."""
        placed = conditions.get("PodScheduled", {})
        if waited > _UNSCHEDULED_SECONDS and placed.get("status") == "False":
            raise Failure(
                f"there is no room for {pod['metadata']['name']} of the rehearsal: {placed.get('message', '')}",
                hint="it asks for what the stack file gives the cluster's own; its volumes are as large, too",
            )
        for container in statuses(pod):
            waiting = container.get("state", {}).get("waiting", {})
            if waited > _UNSCHEDULED_SECONDS / 2 and waiting.get("reason") in _NO_PULL:
                raise Failure(
                    f"{container['name']}: {waiting['reason']}: {waiting.get('message', '')}",
                    hint="`slurmstack images build` makes the images of this release, `images push` uploads them",
                )
            if container.get("restartCount", 0) >= _RESTARTS:
                raise Failure(f"{container['name']} ends again and again:\n{self._said(pod['metadata']['name'])}")

    def _refuse_never_made(self, name: str) -> None:
        """Raise Failure with what Kubernetes has said of a pod that it does not make: a quota, an admission rule."""
        which = f"--field-selector=involvedObject.name={name},reason=FailedCreate"
        if events := self._kubectl.items("event", "-n", self._namespace, which):
            raise Failure(f"the rehearsal's {name} cannot be made: {events[-1].get('message', '')}")

    def _said(self, pod: str) -> str:
        done = self._kubectl.run(
            "logs", pod, "-n", self._namespace, "--all-containers", "--tail=5", check=False, seconds=20
        )
        return done.stdout.strip()[-1500:]

    # --- What it shows --------------------------------------------------------------------------------------------

    def _shown(self, database: Mapping[str, Any] | None) -> Shown:
        jobs = {}
        for line in self._ask("squeue", "--all", "--states=all", "--noheader", "--format=%A|%U|%T").splitlines():
            job, user, state = line.split("|")
            jobs[int(job)] = (int(user), state.strip())
        lines = self._ask("sinfo", "--all", "--noheader", "--format=%R|%a").splitlines()
        partitions = dict(line.strip().split("|") for line in lines)
        answered = None
        if database is not None:
            answered = set[int]()
            if newest := database["newest"]:
                asked = ("--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2")
                named = ("--starttime=1970-01-02", "--format=JobIDRaw", f"--jobs={','.join(map(str, newest))}")
                answered = {int(line) for line in self._ask("sacct", *asked, *named).split() if line.isdigit()}
        return Shown(jobs=jobs, partitions=partitions, answered=answered)

    def _ask(self, *command: str) -> str:
        """What a Slurm command prints beside slurmctld, which may read its queue yet. Raises Failure."""
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            done = in_controller(self._kubectl, self._namespace, *command, seconds=_ANSWER_SECONDS)
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() > until:
                raise Failure(f"{command[0]}: {complaint(done)}", hint=self._said(f"{CONTROLLER}-0"))
            time.sleep(_POLL)

    # --- What is kept of it ---------------------------------------------------------------------------------------

    def _keep(self, outcome: Outcome) -> None:
        """Write how it ended into the cluster, where `backup list` and kube-state-metrics (by the time) see it.

        One that did not come to its end says nothing of the backup, and takes no place of one that did.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = json.dumps({"time": now, **outcome.as_data()}, sort_keys=True)
        known = outcomes(self._kubectl, self._of)
        if outcome.failed and outcome.backup in known and not known[outcome.backup].get("failed"):
            return
        change: dict[str, Any] = {**dict.fromkeys(sorted(known)[: max(0, len(known) - _KEPT)]), outcome.backup: line}
        at = ("configmap", REHEARSALS, "-n", self._of)
        if not self._kubectl.items(*at):
            self._kubectl.run("create", *at)
        ours = ("-n", self._of, f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p")
        self._kubectl.run("patch", "configmap", REHEARSALS, *ours, json.dumps({"data": change}))
        if outcome.ok:
            done = {"status": {"lastSuccessfulTime": now}}
            # Of the CronJob that never runs by itself: its Jobs are made by commands, so that no other time is there.
            self._kubectl.run("patch", "cronjob", BACKUPS, "--subresource=status", *ours, json.dumps(done))


def outcomes(kubectl: Kubectl, namespace: str) -> dict[str, dict[str, Any]]:
    """How rehearsals have ended, by the id of the backup."""
    found: dict[str, dict[str, Any]] = {}
    for item in kubectl.items("configmap", REHEARSALS, "-n", namespace):
        for backup, line in (item.get("data") or {}).items():
            with suppress(ValueError):
                found[backup] = json.loads(line)
    return found


def _copy(secret: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret["metadata"]["name"], "namespace": namespace},
        "type": secret.get("type", "Opaque"),
        "data": secret.get("data") or {},
    }


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
