"""A rehearsal: a backup is put back into a cluster that is thrown away, started, compared, and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cli.backup import throwaway, verdict
from cli.backup.jobs import STUCK, How, complaint_of, run_job
from cli.backup.restore import RESTORED_BY, chosen
from cli.backup.verdict import Outcome, told_by
from cli.change.lock import held
from cli.change.plan import APPLY
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, as_list, complaint, in_controller, is_true, labels_of
from cli.stack import Stack
from local import paths, teardown
from local.report import Report, Step
from slurm.names import ACCOUNTING, BACKUPS, CONTROLLER, DATABASE, RESTORE

LEASE: Final = "slurmstack-rehearsal"
"""Only one at a time; `up` does not wait for it."""

_POLL: Final = 0.5

_READY_SECONDS: Final = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""

_ANSWER_SECONDS: Final = 120.0

_GONE_SECONDS: Final = 300.0
"""For the namespace to go with its pods and volumes."""


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
                if not outcome.problems and self._version == self._stack.config.slurm.version:
                    self._keep_time()
            finally:
                outcome.seconds["total"] = time.monotonic() - begun
                self._remove()
        return outcome

    def _go(self, outcome: Outcome, parts: Sequence[str]) -> None:
        with self._report.step(f"Making {self._namespace}") as step:
            self._make(jail="jail" in parts)
            if "database" in parts:
                self._await_ready(DATABASE, step)
        told = self._put_back(outcome, parts)
        newest = told["database"]["newest"] if "database" in parts else []
        with self._report.step("Starting Slurm") as step:
            if "database" in parts:
                outcome.seconds[ACCOUNTING] = self._start(ACCOUNTING, step)
            outcome.seconds["slurmctld"] = self._start(CONTROLLER, step)
            jobs = self._ask("squeue", "--all", "--states=all", "--noheader", "--format=%A")
            asked = ("--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", "--format=JobIDRaw")
            named = f"--jobs={','.join(map(str, newest))}"
            answered = self._ask("sacct", *asked, "--starttime=1970-01-02", named) if newest else set[int]()
        verdict.judge(outcome, told, jobs, answered)

    # --- What is made, and removed --------------------------------------------------------------------------------

    def _make(self, *, jail: bool) -> None:
        objects = throwaway.objects_for(self.sections, of=self._of, stack=self._stack.name, jail=jail)
        copies = [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": item["metadata"]["name"], "namespace": self._namespace},
                "type": item.get("type", "Opaque"),
                "data": item.get("data") or {},
            }
            for item in self._kubectl.items("secret", *throwaway.borrowed(objects), "-n", self._of)
        ]
        (namespace, *rest) = [item.document for item in objects]
        self._kubectl.run("create", f"--field-manager={FIELD_MANAGER}", "-f", "-", stdin=json.dumps(namespace))
        self._kubectl.run(*APPLY, "-f", "-", stdin=as_list([*copies, *rest]))

    def _remove_left(self) -> None:
        """What one that was killed has left. Raises Failure where the namespace is somebody else's."""
        if self._kubectl.items("namespace", self._namespace):
            if not self._is_mine():
                raise Failure(
                    f"the namespace {self._namespace} is there, and is not of a rehearsal of {self._of}",
                    hint="a rehearsal needs that name: rename the other one",
                )
            self._remove()
        is_local = self._stack.config.cloud.is_local  # its volumes are directories of this machine
        if is_local and any(name.startswith(f"{self._namespace}/") for name in teardown.remaining()):
            raise Failure(
                f"there are files of volumes of {self._namespace}",
                hint="a cluster of that name has left them, or a rehearsal that was killed: "
                f"rm -r {paths.volumes() / self._namespace}",
            )

    def _is_mine(self) -> bool:
        """Whether the namespace is there, and is of a rehearsal of this cluster."""
        found = self._kubectl.items("namespace", self._namespace)
        return any(labels_of(item).get(throwaway.OF) == self._of for item in found)

    def _remove(self) -> None:
        if not self._is_mine():
            return
        with self._report.step(f"Removing {self._namespace}"):
            self._delete_objects()
            if self._stack.config.cloud.is_local:
                teardown.set_aside(self._namespace)
                if problems := teardown.discard():
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
                    f"{self._namespace} is still there after {_GONE_SECONDS:g} s; the next rehearsal removes it",
                    hint=f"`{self._kubectl.shown} describe namespace {self._namespace}` says why",
                )
            time.sleep(_POLL)

    def _put_back(self, outcome: Outcome, parts: Sequence[str]) -> dict[str, dict[str, Any]]:
        env = {"WHAT": " ".join(parts), "AT": outcome.backup, "REHEARSAL": "yes"}
        only = {"restore-choose", *(name for part in parts for name in RESTORED_BY[part] if name != "users")}
        how: How = {"name": RESTORE, "env": env, "only": only}
        try:
            told = told_by(run_job(self._kubectl, self._namespace, RESTORE, self._report, **how))
        except Failure as failure:
            failure.hint = failure.hint or f"backup {outcome.backup} could not be put back; the cluster was not touched"
            raise
        if told.keys() != {*parts}:
            raise Failure("the log of the job that has put the backup back is lost", hint="run this again")
        return told

    def _start(self, name: str, step: Step) -> float:
        change = json.dumps({"spec": {"replicas": 1}})
        self._kubectl.run("patch", "statefulset", name, "-n", self._namespace, "--type=merge", "-p", change)
        return self._await_ready(name, step)

    def _await_ready(self, name: str, step: Step) -> float:
        """Wait for a StatefulSet's pod; how long that took. Raises Failure.

        Not for long where it does not run: there is no room, or no image; a quota; it ends again and again.
        """
        begun = time.monotonic()
        while True:
            (pod,) = self._kubectl.items("pod", f"{name}-0", "-n", self._namespace) or [{}]
            waited = time.monotonic() - begun
            if is_true(pod, "Ready"):
                return waited
            states = [status.get("state", {}) for status in pod.get("status", {}).get("containerStatuses", [])]
            runs = bool(states) and all("running" in state for state in states)
            complaint = "" if runs else complaint_of(self._kubectl, self._namespace, name)
            if waited > (_READY_SECONDS if runs else STUCK):
                what = f"{name} of the rehearsal was not ready within {waited / 60:.0f} minutes"
                raise Failure(f"{what}: {complaint}".rstrip(": "), hint=self._said(f"{name}-0"))
            step.progress(0, 0, complaint or f"waiting for {name}")
            time.sleep(_POLL)

    def _said(self, pod: str) -> str:
        done = self._kubectl.run(
            "logs", pod, "-n", self._namespace, "--all-containers", "--tail=5", check=False, seconds=20
        )
        return done.stdout.strip()[-1500:]

    def _ask(self, *command: str) -> set[int]:
        """Job ids that a Slurm command prints beside slurmctld, which may read its queue yet. Raises Failure."""
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            done = in_controller(self._kubectl, self._namespace, *command, seconds=_ANSWER_SECONDS)
            if done.returncode == 0:
                return {int(line) for line in done.stdout.split() if line.isdigit()}
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
