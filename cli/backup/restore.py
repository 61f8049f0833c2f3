"""The order of a restore: see that there is a backup, stop who writes, keep what is there, put back, start again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cli.backup.jobs import ContainerFailed, NotStarted, answer_in, follow_job, make_job, run_job, running_jobs
from cli.backup.workloads import STARTING, Workloads, component_of
from cli.change.in_place import PUT_BACK, is_put_back
from cli.change.lock import LEASE
from cli.change.owner import REPLICAS_BEFORE, RESTORING, Note, Step, is_stopped, note_of, refuse_half_restored
from cli.errors import INTERRUPTED, USAGE, Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl
from local.report import Report
from slurm.names import ACCOUNTING, BACKUP, BACKUPS, CONTROLLER, ELASTIC, LOGIN, RESTORE, WORKER

PARTS = ("state", "database", "jail")

_STOPPED = {
    "state": (CONTROLLER, ELASTIC, WORKER), "database": (CONTROLLER, ACCOUNTING), "jail": (ELASTIC, WORKER, LOGIN),
}  # fmt: skip
"""Part -> components whose pods write there, or live from it. slurmctld first: what follows is no news to it then.
`elastic` next, which would make pods in the place of those that end. slurmctld takes the cluster's id from the
database, and so starts anew with that, too."""

_BY_DATABASE = ("restore-look", "restore-database", "restore-state")
RESTORED_BY = {"state": _BY_DATABASE, "database": _BY_DATABASE, "jail": ("restore-jail", "users")}
"""Part -> containers of a restore that put it back. The state's job ids go on above those of accounting; slurmctld
takes the cluster's id from the database; accounts in the jail are those of the stack file."""


_LOOKING = frozenset({"restore-choose", "restore-look"})
"""Containers of a restore that replace nothing."""


def parts_of(what: Sequence[str], *, accounting: bool) -> list[str]:
    """Parts in their order. Raises Failure for what is none, or is not there."""
    wanted = [part for text in what for part in text.split(",") if part]
    unknown = [part for part in wanted if part not in {*PARTS, "all"}]
    if unknown:
        raise Failure(f"--what {unknown[0]}: there is {', '.join(PARTS)} and all", code=USAGE)
    if "database" in wanted and not accounting:
        raise Failure("--what database: this stack has no accounting", code=USAGE)
    everything = not wanted or "all" in wanted
    return [part for part in PARTS if (everything or part in wanted) and (part != "database" or accounting)]


def chosen(kubectl: Kubectl, namespace: str, parts: Sequence[str], at: str, report: Report) -> dict[str, Any]:
    """The backup that a restore would take. Raises Failure."""
    told = {"WHAT": " ".join(parts), "AT": at}
    (found,) = answer_in(run_job(kubectl, namespace, BACKUPS, report, env=told))
    return dict(found)


def refuse_restoring(kubectl: Kubectl, namespace: str) -> None:
    """Raise Failure while something is put back, or was by half."""
    if RESTORE in running_jobs(kubectl, namespace):
        raise Failure(
            f"a restore runs, as the job {RESTORE}; nothing was touched",
            hint=f"kubectl get -n {namespace} job/{RESTORE} --watch shows when it has ended",
        )
    refuse_half_restored(kubectl.items("statefulset,deployment", "-n", namespace))


def forget_restore(kubectl: Kubectl, namespace: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """An apply has started what a restore has left stopped: a pool of no nodes would be taken for one that it stops."""
    for item in objects:
        noted = {REPLICAS_BEFORE, PUT_BACK, RESTORING} & set(item["metadata"].get("annotations") or {})
        if noted and item["kind"] in {"StatefulSet", "Deployment"}:
            workload = f"{item['kind'].lower()}/{item['metadata']['name']}"
            away = [f"{note}-" for note in sorted(noted)]
            kubectl.run("annotate", workload, "-n", namespace, *away, f"--field-manager={FIELD_MANAGER}")


def put_back_of(item: Mapping[str, Any]) -> str:
    """The backup that a restore has left for an apply to start; empty where there is none."""
    return str((item["metadata"].get("annotations") or {}).get(PUT_BACK, "")) if is_put_back(item) else ""


class Restoring:
    """One restore in one cluster. Interrupted anywhere, the same again goes on."""

    def __init__(self, kubectl: Kubectl, namespace: str, parts: Sequence[str], report: Report) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._parts = parts
        self._workloads = Workloads(kubectl, namespace)
        self._report = report
        self._note = Note(step="stopping", parts=tuple(parts), backup="")
        self._earlier: tuple[str, ...] = ()
        """What another restore may have put back by half."""
        self._job: str | None = None
        self._other = ""
        self.leaves_stopped = False
        """Whether Slurm is stopped after a run that succeeded."""

    def look_around(self) -> None:
        """See who restores: before a person is asked, and before the cluster's lock is waited for."""
        for lease in self._kubectl.items("lease", LEASE, "-n", self._namespace):
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            self._other = holder if holder.startswith("slurmstack restore ") else self._other
        if self._job is None:
            self._job = self._last_job()

    def only_starts(self, at: str) -> str:
        """The backup that was put back before, where nothing but a start is left of this restore; else empty."""
        there = self._workloads.objects()
        note = note_of(there)
        if note is None or note.step != "starting" or not any(map(is_stopped, there)):
            return ""
        return note.backup if (note.parts, note.backup) == (tuple(self._parts), at) else ""

    def run(self, backup: str, *, copy: bool, start: bool = True, only_start: bool = False) -> str:
        """Put the parts of a backup back; what was there is saved first, if `copy` is set. Returns what was said.

        Until something is put back, a failure starts all that was stopped. `start`: whether success does; otherwise
        the next apply does, which may have an older release of Slurm. `only_start`: no more was agreed to.
        """
        self._refuse_another()
        there = self._workloads.objects()
        before, put_back = note_of(there), next(filter(None, map(put_back_of, there)), "")
        stopped = any(map(is_stopped, there))
        self._note = Note(step="stopping", parts=tuple(self._parts), backup=backup, leave_stopped=not start)
        if before is not None and replace(before, half=()) == replace(self._note, step="starting"):
            return self._only_start(stopped)
        if only_start:
            raise Refused("what was still stopped was started meanwhile, by something else; nothing was touched")
        before = before if stopped else None
        if put_back or not stopped:
            self._refuse_repeated()
        left = put_back or (before.left if before is not None else "")
        half = before.half if before is not None else ()
        self._refuse_less(there, before, left)
        self._note, self._earlier = replace(self._note, left=left, half=half), half
        # What may be half restored is nothing to go back to, unless somebody has started it by hand.
        started = CONTROLLER in self._components(half) and not any(
            is_stopped(item) for item in there if component_of(item) == CONTROLLER
        )
        saves = [part for part in self._parts if copy and (started or part not in half)]
        stays_stopped = stopped and (bool(left or half) or before is None)
        self._stop_and_save(saves, half=stays_stopped)
        said = self._put_back(half=stays_stopped)
        self._refuse_started()
        stays = left if CONTROLLER not in self._components() else ""
        self.leaves_stopped = not start or bool(stays)
        try:
            if self.leaves_stopped:
                self._annotate({PUT_BACK: stays or backup, RESTORING: None})
            else:
                self._note = replace(self._note, left="", half=())
                self._go_on_to("starting")
        except Failure as failure:
            failure.hint = failure.hint or self._afterwards
            raise
        if not self.leaves_stopped:
            self._start()
        return said

    def _only_start(self, stopped: bool) -> str:
        """All was put back, and the command was cut short after that."""
        if stopped:
            self._start()
            return f"restore: backup {self._note.backup} was put back before; what was still stopped is started now\n"
        self._suspend(False)
        self._annotate({RESTORING: None})
        raise Refused(
            f"backup {self._note.backup} was put back before, and all was started: nothing is left to do",
            hint="the same again puts it back once more, and what has come since is gone",
        )

    def _stop_and_save(self, saves: Sequence[str], *, half: bool) -> None:
        """Until something is put back. `half`: an earlier restore has done so, and what is there does not start."""
        try:
            self._suspend(True)
            self._refuse_backup()
            self._go_on_to("stopping")
            with self._report.step("Stopping " + ", ".join(self._components())):
                self._workloads.stop(self._components())
            self._refuse_backup()  # which has begun meanwhile: it would save what is put back by half
            if saves:
                self._save(saves)
            # Whatever happens from here on, an apply may not start what is there.
            self._note = replace(self._note, half=self._note.parts)
            self._go_on_to("putting")
            self._refuse_backup()
        except BaseException as error:
            self._take_back(half=half)
            if isinstance(error, Failure):
                untouched = "nothing was touched; --no-copy does without a copy of what is replaced"
                error.hint = error.hint or (self._afterwards if half else untouched)
            raise

    @property
    def _afterwards(self) -> str:
        return (
            f"what was stopped stays so: `{self._note.command}` goes on. docs/restore.md says how to start with what "
            "is there instead"
        )

    def _go_on_to(self, step: Step) -> None:
        self._note = replace(self._note, step=step)
        notes = {RESTORING: self._note.written(), **({PUT_BACK: None} if step == "putting" else {})}
        self._annotate(notes)

    def _annotate(self, notes: Mapping[str, str | None]) -> None:
        """At slurmctld's StatefulSet: an apply and the next restore look there."""
        self._workloads.patch("statefulset", CONTROLLER, {"metadata": {"annotations": notes}})

    def _put_back(self, *, half: bool) -> str:
        told = {"WHAT": " ".join(self._parts), "AT": self._note.backup}
        only = {"restore-choose", *(name for part in self._parts for name in RESTORED_BY[part])}
        last, begun = None, False
        try:
            last = self._last_job()
            make_job(self._kubectl, self._namespace, RESTORE, name=RESTORE, env=told, only=only)
            begun = True
            return follow_job(self._kubectl, self._namespace, RESTORE, self._report)
        except (Failure, KeyboardInterrupt) as error:
            begun = begun or (last is not None and self._is_newer_than(last))
            looked = isinstance(error, ContainerFailed) and error.container in _LOOKING
            begun = begun and not looked and not isinstance(error, NotStarted)
            touched = begun or not self._ends_job()
            if not touched:
                self._take_back(half=half)
            hint = self._afterwards if touched or half else "nothing was touched"
            if isinstance(error, Failure):
                error.hint = f"{error.hint}; {hint}" if error.hint and touched else error.hint or hint
                raise
            done = f"but the job {RESTORE} goes on in the cluster" if touched else "and nothing was put back"
            raise Failure(f"interrupted, {done}", hint=hint, code=INTERRUPTED) from None

    def _refuse_started(self) -> None:
        """Raise Failure where somebody has started what this has stopped: it has read half of what was put back."""
        mine = [item for item in self._workloads.objects() if component_of(item) in self._components()]
        noted = [item["metadata"] for item in mine if item["spec"].get("replicas")]
        started = [str(item["name"]) for item in noted if REPLICAS_BEFORE in (item.get("annotations") or {})]
        if started:
            raise Failure(
                f"{', '.join(started)} started in the midst of this restore, by something else than this command",
                hint=f"suspend what applies this cluster (Flux, Argo CD); `{self._note.command}` puts it back anew",
            )

    def _ends_job(self) -> bool:
        """Whether there is no Job any more that has put nothing back, nor one whose making was not seen to its end."""
        try:
            self._kubectl.run(
                "delete", "job", RESTORE, "-n", self._namespace, "--ignore-not-found", "--cascade=foreground"
            )
        except Failure:
            return False
        return True

    def _is_newer_than(self, last: str) -> bool:
        """Whether there is a Job of this restore, after that `last` one; also where the API server does not say."""
        try:
            return self._last_job() not in {"", last}
        except Failure:
            return True

    def _take_back(self, *, half: bool) -> None:
        """This restore has put nothing back. `half`: what is there does not start all the same."""
        self._note = replace(self._note, half=self._earlier)
        if not half:
            self._undo()
            return
        with suppress(Failure):  # why it is taken back is said
            if self._note.left and not self._note.half:
                self._annotate({PUT_BACK: self._note.left, RESTORING: None})
            else:
                self._go_on_to("stopping")

    def _refuse_another(self) -> None:
        """Raise Failure where another restore runs: its schedule stays off."""
        if RESTORE in running_jobs(self._kubectl, self._namespace):
            raise Failure(
                f"a restore runs already, as the job {RESTORE}",
                hint=f"kubectl get -n {self._namespace} job/{RESTORE} --watch shows when it has ended; the same "
                "command then goes on. kubectl delete ends it",
            )

    def _refuse_repeated(self) -> None:
        """Raise Refused where somebody else has restored since `look_around`: jobs that run by now would end again."""
        if self._job is not None and (self._other or self._last_job() != self._job):
            raise Refused(
                f"{self._other or 'somebody else'} has restored meanwhile, or tried to; nothing was touched",
                hint="look at what is there now, and run this again if it is still wanted",
            )

    def _refuse_less(self, there: Sequence[Mapping[str, Any]], before: Note | None, left: str) -> None:
        """Raise Refused where this would start what lives from what is half restored, or from what stays stopped."""
        mine = set(self._components())
        stopped = {component_of(item) for item in there if is_stopped(item)} - mine
        if left and CONTROLLER not in mine:
            stopped = set()  # an apply starts that
        half = before.half if before is not None else ()
        more = []
        for part in PARTS:
            if part not in self._parts and (part in half or set(_STOPPED[part]) & stopped):
                more.append(part)
                stopped -= set(_STOPPED[part])
        if more:
            known = before is not None and {*more, *self._parts} <= {*before.parts}
            hint = f"`{before.command}` goes on with it" if before is not None and known else ""
            raise Refused(
                f"an earlier restore has stopped what lives from {', '.join(more)}, too, or has put that back by half; "
                "nothing was touched",
                hint=hint or f"name these as well: --what {','.join([*self._parts, *more])}",
            )

    def _last_job(self) -> str:
        """Which one was the last that has put something back; empty where there is none any more."""
        found = self._kubectl.items("job", RESTORE, "-n", self._namespace)
        return str(found[0]["metadata"]["uid"]) if found else ""

    def _refuse_backup(self) -> None:
        """Raise Failure where a backup runs. None begins any more."""
        for name in running_jobs(self._kubectl, self._namespace):
            raise Failure(f"the job {name} runs", hint="wait for its end, or delete it")

    def _undo(self) -> None:
        """Nothing is put back yet: start what was stopped, and the schedule. Raises Failure that says what stays."""
        try:
            if RESTORE in running_jobs(self._kubectl, self._namespace):
                return  # another one goes on with what is stopped
            if any(map(is_stopped, self._workloads.objects())):
                self._note = replace(self._note, half=())
                self._go_on_to("stopping")  # before jobs are accepted again, which the next try has to save
                self._start(wait=False)
            else:
                self._suspend(False)
                self._annotate({RESTORING: None})
        except Failure as failure:
            failure.hint = (
                failure.hint
                or "backups are suspended, and what was stopped may stay so: the same command again mends it"
            )
            raise

    def _suspend(self, suspended: bool) -> None:
        self._workloads.patch("cronjob", BACKUP, {"spec": {"suspend": suspended}})

    def _components(self, parts: Sequence[str] | None = None) -> list[str]:
        chosen = self._parts if parts is None else parts
        return list(dict.fromkeys(component for part in chosen for component in _STOPPED[part]))

    def _save(self, parts: Sequence[str]) -> None:
        """A backup of what is replaced, which no retention takes away."""
        saved = ["state", *(part for part in parts if part != "state")]  # its container opens the repository
        told, containers = {"KIND": "before-restore", "PARTS": " ".join(saved)}, {f"backup-{part}" for part in saved}
        anywhere = CONTROLLER in self._components()
        run_job(self._kubectl, self._namespace, BACKUP, self._report, env=told, only=containers, anywhere=anywhere)

    def _start(self, *, wait: bool = True) -> None:
        """Start what is stopped. `wait`: all is put back, and it is to be seen that slurmctld has it."""
        mine = self._components()
        hint = f"all is put back: `{self._note.command}` only starts what is still stopped" if wait else ""
        with self._report.step("Starting " + ", ".join(part for part in STARTING if part in mine)) as step:
            try:
                self._workloads.start(mine)
                self._suspend(False)
                self._annotate({PUT_BACK: None, RESTORING: None})
            except Failure as failure:
                failure.hint = failure.hint or hint
                raise
            except KeyboardInterrupt:
                if not wait:
                    raise
                raise Failure("interrupted while it was started", hint=hint, code=INTERRUPTED) from None
            try:
                for component in (ACCOUNTING, CONTROLLER) if wait else ():
                    if component in mine:
                        self._workloads.wait_ready(component, step)
            except KeyboardInterrupt:
                hint = "nothing is left to do; the same command would restore once more. `slurmstack status` shows it"
                raise Failure("interrupted; what was stopped starts by itself", hint=hint, code=INTERRUPTED) from None
