"""A rehearsal: a backup is put back into a cluster that is thrown away, started, compared, and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cli.backup import throwaway, verdict
from cli.backup.jobs import run_job, statuses
from cli.backup.restore import RESTORED_BY, chosen
from cli.backup.verdict import Outcome, Shown, told_by
from cli.change.lock import held
from cli.change.plan import APPLY
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, complaint, in_controller, is_true
from cli.stack import Stack
from local import paths, volumes
from local.report import Report, Step
from slurm.names import ACCOUNTING, BACKUPS, CONTROLLER, DATABASE, RESTORE

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

_STUCK_SECONDS: Final = 60.0
"""After which what Kubernetes complains about, of a pod that does not run, is an answer."""


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
            begun = time.monotonic()
            try:
                self._go(outcome, parts)
                if outcome.ok and self._version == self._stack.config.slurm.version:
                    self._keep_time()
            finally:
                outcome.seconds["total"] = time.monotonic() - begun
                self._remove()
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
        if mine:
            self._remove()
        is_local = self._stack.config.cloud.is_local  # its volumes are directories of this machine
        if is_local and any(name.startswith(f"{self._namespace}/") for name in volumes.remaining()):
            raise Failure(
                f"there are files of volumes of {self._namespace}",
                hint="a cluster of that name has left them, or a rehearsal that was killed: "
                f"rm -r {paths.volumes() / self._namespace}",
            )

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
            if self._stack.config.cloud.is_local:
                volumes.set_aside(self._namespace)
                if problems := volumes.discard():
                    raise Failure(f"not all files of {self._namespace} could be removed: {problems[0]}")

    def _delete_objects(self) -> None:
        """The namespace with all in it, and static volumes, which are in none. Raises Failure where they stay."""
        static = [
            str(item["metadata"]["name"])
            for item in self._kubectl.items("persistentvolume", "-l", "app.kubernetes.io/part-of=slurmstack")
            if item["spec"].get("claimRef", {}).get("namespace") == self._namespace
        ]
        soon = ("--ignore-not-found", "--wait=false")
        if static:
            self._kubectl.run("delete", "persistentvolume", *static, *soon)
        self._kubectl.run("delete", "namespace", self._namespace, *soon)
        until = time.monotonic() + _GONE_SECONDS
        while self._kubectl.items("namespace", self._namespace) or (
            static and self._kubectl.items("persistentvolume", *static)
        ):
            if time.monotonic() > until:
                raise Failure(
                    f"{self._namespace} is still there after {_GONE_SECONDS:g} s",
                    hint=f"`{self._kubectl.shown} describe namespace {self._namespace}` says why; the next rehearsal "
                    "removes it",
                )
            time.sleep(_POLL)

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
        return told_by(said)

    def _start(self, name: str) -> None:
        change = json.dumps({"spec": {"replicas": 1}})
        self._kubectl.run("patch", "statefulset", name, "-n", self._namespace, "--type=merge", "-p", change)

    def _await_ready(self, name: str, limit: float, step: Step) -> float:
        """Wait for a StatefulSet's pod; how long that took. Raises Failure."""
        begun = time.monotonic()
        while True:
            (found,) = self._kubectl.items("pod", f"{name}-0", "-n", self._namespace) or [{}]
            waited = time.monotonic() - begun
            if is_true(found, "Ready"):
                return waited
            if waited > _STUCK_SECONDS and (reasons := _stuck_by(found)):
                self._refuse_stuck(name, reasons)
            if waited > limit:
                raise Failure(f"{name} was not ready within {limit / 60:g} minutes", hint=self._said(f"{name}-0"))
            step.progress(0, 0, f"waiting for {name}")
            time.sleep(_POLL)

    def _refuse_stuck(self, name: str, reasons: Collection[str]) -> None:
        """Raise Failure with what Kubernetes has said of a pod: no room, no image, a quota, it ends again and again."""
        events = self._kubectl.items("event", "-n", self._namespace, "--field-selector=type=Warning")
        said = [
            str(event.get("message"))
            for event in events
            if event["involvedObject"]["name"] in {name, f"{name}-0"} and event.get("reason") in reasons
        ]
        if said:
            raise Failure(f"{name} of the rehearsal does not start: {said[-1]}", hint=self._said(f"{name}-0"))

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
        answered = None
        if database is not None:
            answered = set[int]()
            if newest := database["newest"]:
                asked = ("--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2")
                named = ("--starttime=1970-01-02", "--format=JobIDRaw", f"--jobs={','.join(map(str, newest))}")
                answered = {int(line) for line in self._ask("sacct", *asked, *named).split() if line.isdigit()}
        return Shown(jobs=jobs, answered=answered)

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

    def _keep_time(self) -> None:
        """Write when it ended well to where `backup list` and kube-state-metrics see it.

        That is a CronJob that never runs by itself: its Jobs are made by commands, so that no other time is there.
        """
        done = {"status": {"lastSuccessfulTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
        ours = ("-n", self._of, f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p")
        self._kubectl.run("patch", "cronjob", BACKUPS, "--subresource=status", *ours, json.dumps(done))


def _copy(secret: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret["metadata"]["name"], "namespace": namespace},
        "type": secret.get("type", "Opaque"),
        "data": secret.get("data") or {},
    }


def _stuck_by(pod: Mapping[str, Any]) -> frozenset[str]:
    """Reasons of events that say why a pod does not start; none of one that may yet, as while it pulls its image."""
    if not pod:
        return frozenset({"FailedCreate"})
    if not is_true(pod, "PodScheduled"):
        return frozenset({"FailedScheduling"})
    found = statuses(pod)
    no_image = any("ImagePull" in str(status.get("state", {}).get("waiting", {}).get("reason")) for status in found)
    ends = any(status.get("restartCount", 0) > 1 for status in found)
    return frozenset({"Failed", "BackOff"} if no_image or ends else ())
