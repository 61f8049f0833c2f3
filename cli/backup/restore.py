"""The order of a restore: see that there is a backup, stop who writes, keep what is there, put back, start again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from cli.backup.jobs import JAIL_COPY, make_job, run_job, running_jobs
from cli.change.owner import PUT_BACK, REPLICAS_BEFORE, RESTORING, Note, is_stopped, note_of, refuse_half_restored
from cli.errors import FAILED, INTERRUPTED, USAGE, Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl, annotations_of, component_of, in_controller
from cli.kubectl.jobs import POLL, NotBegunError, answer_in, follow_job
from local.report import Report
from slurm.names import ACCOUNTING, BACKUP, BACKUPS, CONTROLLER, ELASTIC, LOGIN, RESTORE, WORKER

PARTS = ("state", "database", "jail")

_STOPPED = {
    "state": (CONTROLLER, ELASTIC, WORKER), "database": (CONTROLLER, ACCOUNTING), "jail": (ELASTIC, WORKER, LOGIN),
}  # fmt: skip
"""Part -> components whose pods write there, or live from it. slurmctld first: what follows is no news to it then.
`elastic` next, which would make pods in the place of those that end. slurmctld takes the cluster's id from the
database, and so starts anew with that, too."""

_STARTING = (ACCOUNTING, CONTROLLER, WORKER, LOGIN, ELASTIC)

_OF_JAIL = ("restore-jail", "users")
"""Containers of a restore. Accounts in the jail are those of the stack file."""

_GRACE = 10
"""Seconds for pods of workers and login nodes to end. Their jobs have no slurmctld to report to."""

_STOP_SECONDS = 600.0
_START_SECONDS = 4 * 3600.0
"""As in components/accounting.py: slurmdbd converts a database of an older Slurm first."""


def parts_of(what: Sequence[str], *, accounting: bool) -> list[str]:
    """Parts in their order. Raises Failure for what is none, or is not there."""
    there = [part for part in PARTS if part != "database" or accounting]
    wanted = [part for text in what for part in text.split(",") if part] or ["all"]
    for part in wanted:
        if part not in {*there, "all"}:
            why = "this stack has no accounting" if part in PARTS else f"there is {', '.join(PARTS)} and all"
            raise Failure(f"--what {part}: {why}", code=USAGE)
    return there if "all" in wanted else [part for part in there if part in wanted]


def chosen(kubectl: Kubectl, namespace: str, parts: Sequence[str], at: str, report: Report) -> str:
    """The id of the backup that a restore would take, which was read. Raises Failure."""
    env = {"WHAT": " ".join(parts), "AT": at}
    (found,) = answer_in(run_job(kubectl, namespace, BACKUPS, report, env=env))
    return str(found["id"])


def _refuse_running(kubectl: Kubectl, namespace: str, *which: str) -> None:
    """Raise Failure while a Job of a backup or a restore runs, or one of these."""
    for name in running_jobs(kubectl, namespace):
        if not which or name in which:
            hint = f"wait for its end (kubectl get -n {namespace} job/{name} --watch), or delete it"
            raise Failure(f"the job {name} runs", hint=hint)


def refuse_restoring(kubectl: Kubectl, namespace: str) -> None:
    """Raise Failure while something is put back, or was by half."""
    _refuse_running(kubectl, namespace, RESTORE)
    refuse_half_restored(kubectl.items("statefulset,deployment", "-n", namespace))


def _replicas_of(item: Mapping[str, Any]) -> int:
    """How many pods a workload has, or had before it was stopped."""
    return int(item["spec"].get("replicas", 1)) or int(annotations_of(item).get(REPLICAS_BEFORE) or 0)


class Restoring:
    """One restore in one cluster. Interrupted before all is put back, the same again goes on; afterwards an apply does.

    A note at slurmctld's StatefulSet says how far it has come: an apply and the next restore look there.
    """

    def __init__(self, kubectl: Kubectl, namespace: str, parts: Sequence[str], report: Report) -> None:
        self._kubectl, self._namespace, self._parts, self._report = kubectl, namespace, parts, report
        self._components = list(dict.fromkeys(component for part in parts for component in _STOPPED[part]))

    def run(self, backup: str, *, copy: bool, start: bool = True) -> str:
        """Put the parts of a backup back; what was there is saved first, if `copy` is set. Returns what was said.

        Until something is put back, a failure starts all that was stopped. `start`: whether success does; otherwise
        the next apply does, which may have an older release of Slurm.
        """
        _refuse_running(self._kubectl, self._namespace)
        there = self._workloads()
        was_stopped = any(map(is_stopped, there))
        before = note_of(there) if was_stopped else None
        self._refuse_less(there, before)
        # What may be half restored is nothing to go back to.
        half = before.parts if before is not None and before.step == "putting" else ()
        step: Literal["stopping", "putting"] = "putting" if half else "stopping"
        note = Note(step=step, parts=tuple(self._parts), backup=backup, leave_stopped=not start)
        goes_on, is_putting = f"what was stopped stays so: `{note.command}` goes on (docs/restore.md)", False
        try:
            self._stop(note)
            if saves := [part for part in self._parts if copy and part not in half]:
                self._save(saves)
                _refuse_running(self._kubectl, self._namespace)
            # Whatever happens from here on, an apply may not start what is there.
            self._annotate({RESTORING: replace(note, step="putting").written(), PUT_BACK: None})
            is_putting = True
            output = self._put_back(backup)
            self._annotate({PUT_BACK: backup, RESTORING: None})
        except BaseException as error:
            is_untouched = not was_stopped and (not is_putting or isinstance(error, NotBegunError))
            if is_untouched:
                self._undo(note, error, goes_on)
            without = "; --no-copy does without a copy of what is replaced" if copy and not is_putting else ""
            hint = f"nothing was touched{without}" if is_untouched else goes_on
            if isinstance(error, Failure):
                error.hint = error.hint or hint
            if not isinstance(error, KeyboardInterrupt):
                raise
            what = f"interrupted, but the job {RESTORE} goes on in the cluster" if is_putting else "interrupted"
            raise Failure(what, hint=hint, code=INTERRUPTED) from None
        if start:
            self._start_and_wait()
        return output

    def _stop(self, note: Note) -> None:
        """Let no backup begin, and nothing write to what is put back. Raises Failure."""
        self._patch("cronjob", BACKUP, {"spec": {"suspend": True}})
        _refuse_running(self._kubectl, self._namespace)
        self._annotate({RESTORING: note.written()})
        with self._report.step("Stopping " + ", ".join(self._components)):
            there = self._workloads()
            for component in self._components:
                for item in there:
                    if component_of(item) == component and (replicas := _replicas_of(item)):
                        self._scale(item, 0, note=str(replicas))
                self._end_pods(component)
        _refuse_running(
            self._kubectl, self._namespace
        )  # which has begun meanwhile: it would save what is put back by half

    def _save(self, parts: Sequence[str]) -> None:
        """A backup of what is replaced, which no retention takes away."""
        saved = ["state", *(part for part in parts if part != "state")]  # its container opens the repository
        env, anywhere = {"KIND": "before-restore", "PARTS": " ".join(saved)}, CONTROLLER in self._components
        without = () if "jail" in saved else (JAIL_COPY,)
        run_job(self._kubectl, self._namespace, BACKUP, self._report, env=env, without=without, anywhere=anywhere)

    def _put_back(self, backup: str) -> str:
        env = {"WHAT": " ".join(self._parts), "AT": backup}
        of_slurm = ["restore-state"] if {*self._parts} == {"jail"} else []
        without = [*of_slurm, *(() if "jail" in self._parts else _OF_JAIL)]
        make_job(self._kubectl, self._namespace, RESTORE, name=RESTORE, env=env, without=without)
        return follow_job(self._kubectl, self._namespace, RESTORE, self._report)

    def _undo(self, note: Note, cause: BaseException, goes_on: str) -> None:
        """Start what was stopped; nothing was put back. What is accepted from now on, the next restore has to save."""
        try:
            self._annotate({RESTORING: note.written()})
            self._start()
        except Failure as failure:
            first = str(cause) or "interrupted"
            raise Failure(f"{first}; it could not be started again: {failure.message}", hint=goes_on) from cause

    def _start(self) -> None:
        """Let all that is stopped have as many pods as it had, and the schedule go on. Raises Failure."""
        there = self._workloads()
        for component in (each for each in _STARTING if each in self._components):
            for item in there:
                if component_of(item) == component and is_stopped(item):
                    self._scale(item, _replicas_of(item), note=None)
        self._patch("cronjob", BACKUP, {"spec": {"suspend": False}})
        self._annotate({PUT_BACK: None, RESTORING: None})

    def _start_and_wait(self) -> None:
        """All is put back, and it is to be seen that slurmctld has it. The same again would replace what comes now."""
        until = time.monotonic() + _START_SECONDS
        with self._report.step("Starting " + ", ".join(part for part in _STARTING if part in self._components)) as step:
            try:
                self._start()
                while CONTROLLER in self._components and not self._answers(until):
                    step.progress(0, 0, f"waiting for slurmctld: `slurmstack logs {CONTROLLER}` says for what it waits")
                    time.sleep(POLL)
            except (Failure, KeyboardInterrupt) as error:
                raise Failure(
                    str(error) or "interrupted while it was started",
                    hint=getattr(error, "hint", "") or "all is put back: `slurmstack up` starts what is still stopped",
                    code=FAILED if isinstance(error, Failure) else INTERRUPTED,
                ) from None

    def _answers(self, until: float) -> bool:
        """Whether slurmctld does, after slurmdbd. Raises Failure where it is too late."""
        if time.monotonic() > until:
            raise Failure(f"slurmctld did not answer within {_START_SECONDS / 3600:g} hours")
        return in_controller(self._kubectl, self._namespace, "scontrol", "ping").returncode == 0

    def _refuse_less(self, there: Sequence[Mapping[str, Any]], before: Note | None) -> None:
        """Raise Refused where this would start what lives from what another one has half restored, or has stopped."""
        stopped = {component_of(item) for item in there if is_stopped(item)} - {*self._components}
        if before is not None and {*before.parts} != {*self._parts}:
            raise Refused(
                f"a restore of {', '.join(before.parts)} was not finished; nothing was touched",
                hint=f"`{before.command}` goes on with it",
            )
        if stopped:
            raise Refused(
                f"{', '.join(sorted(stopped))} stopped by an earlier restore would stay so; nothing was touched",
                hint="`slurmstack up` starts what that has put back",
            )

    # --- The cluster ----------------------------------------------------------------------------------------------

    def _workloads(self) -> list[dict[str, Any]]:
        return self._kubectl.items("statefulset,deployment", "-n", self._namespace)

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        ours = (f"--field-manager={FIELD_MANAGER}", "--type=merge", "-p", json.dumps(change))
        self._kubectl.run("patch", kind, name, "-n", self._namespace, *ours)

    def _annotate(self, notes: Mapping[str, str | None]) -> None:
        self._patch("statefulset", CONTROLLER, {"metadata": {"annotations": notes}})

    def _scale(self, item: Mapping[str, Any], replicas: int, *, note: str | None) -> None:
        change = {"metadata": {"annotations": {REPLICAS_BEFORE: note}}, "spec": {"replicas": replicas}}
        self._patch(item["kind"].lower(), item["metadata"]["name"], change)

    def _end_pods(self, component: str) -> None:
        """Wait until its pods are gone."""
        which = ("-n", self._namespace, "-l", f"app.kubernetes.io/component={component}")
        if component in {WORKER, LOGIN}:
            soon = (f"--grace-period={_GRACE}", "--wait=false", "--ignore-not-found")
            self._kubectl.run("delete", "pod", *which, *soon)
        until = time.monotonic() + _STOP_SECONDS
        while pods := self._kubectl.items("pod", *which):
            if time.monotonic() > until:
                names = ", ".join(str(pod["metadata"]["name"]) for pod in pods[:5])
                raise Failure(
                    f"{names} did not end within {_STOP_SECONDS:g} s",
                    hint="where its machine is gone for good: "
                    f"kubectl delete pod --force -n {self._namespace} NAME, then this again",
                )
            time.sleep(POLL)
