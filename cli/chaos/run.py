"""One run: which faults come when, jobs meanwhile, and what became of them.

The faults are the same for the same seed, so that what was found can be found again.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from cli.chaos.stream import GAP, Jail, Record, Stream, Verdict, gaps, judge, listed, records_in
from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl, complaint, in_controller
from cli.kubectl.pods import LEAVING, pod_of
from cli.stack import Stack
from local.report import Report, duration_text
from slurm.names import ACCOUNTING, CONTROLLER, DATABASE, ELASTIC, LOGIN, WORKER

DELETE: Final = "delete"
LOSE: Final = "lose"
STOP: Final = "stop"
CRASH: Final = "crash"

WORDS: Final = {
    DELETE: "delete the pod",
    LOSE: "delete the pod without a goodbye",
    STOP: "end the main process (SIGTERM)",
    CRASH: "kill the main process (SIGKILL)",
}
"""Kind of fault -> for people."""

CONTAINERS: Final = {
    CONTROLLER: "slurmctld", ACCOUNTING: "slurmdbd", DATABASE: "mariadbd", LOGIN: "sshd", ELASTIC: "elastic",
}  # fmt: skip
"""Component -> its container with the main process, for those whose process is ended in place."""

_KINDS: Final = {
    CONTROLLER: (DELETE, LOSE, STOP),
    ACCOUNTING: (DELETE, LOSE, STOP),
    # MariaDB is no first process of its container, which nothing in there can kill.
    DATABASE: (DELETE, LOSE, CRASH),
    LOGIN: (DELETE, LOSE),
    ELASTIC: (DELETE, LOSE),
    WORKER: (DELETE, LOSE),
}

DEFAULT: Final = (CONTROLLER, ACCOUNTING, DATABASE, LOGIN, ELASTIC)
"""What may be hit unless something else is said: jobs run on. Workers only by name."""

BETWEEN: Final = (6.0, 20.0)
"""Seconds between two faults, at least and at most."""

_CALM: Final = 10.0
"""Seconds before the first fault and after the last one."""

SETTLE: Final = 300.0
"""Seconds for jobs to end, and their records to be written, after the last fault."""

_INTERRUPTED_SETTLE: Final = 60.0

_POLL: Final = 2.0

_KILL: Final = """\
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/comm") as file:
            if file.read().strip() == sys.argv[1]:
                os.kill(int(pid), 9)
                print(pid)
    except OSError:
        pass
"""
"""Kills the processes of a name in a container, and prints which."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault."""

    at: float
    """Seconds after the begin."""
    component: str
    kind: str
    which: float
    """Which of the component's pods, in the order of their names: 0 the first, nearly 1 the last."""

    def pod(self, names: Sequence[str]) -> str:
        """The pod among those that are there."""
        return sorted(names)[int(self.which * len(names))]


def allowed(words: Collection[str]) -> tuple[str, ...]:
    """Components that were named, `controller,slurmdbd`; all but workers where none was. Raises Failure."""
    named = [part for word in words for part in word.split(",") if part]
    if unknown := [part for part in named if part not in _KINDS]:
        raise Failure(f"--allow {unknown[0]}: there is {', '.join(_KINDS)}", code=USAGE)
    return tuple(component for component in _KINDS if component in (named or DEFAULT))


def plan(seed: int, seconds: float, components: Sequence[str], *, controllers: int) -> list[Fault]:
    """The faults of a run, in their order.

    The only controller is never deleted without a goodbye: the next one could begin before it has ended, and two that
    write the same state destroy it.
    """
    chance, at, faults = random.Random(seed), _CALM, list[Fault]()  # noqa: S311  it is to be repeated
    while at <= seconds - _CALM and components:
        component = chance.choice(components)
        kind = chance.choice(_KINDS[component])
        if (component, kind, controllers) == (CONTROLLER, LOSE, 1):
            kind = DELETE
        faults.append(Fault(at=round(at, 1), component=component, kind=kind, which=chance.random()))
        at += chance.uniform(*BETWEEN)
    return faults


def shown(faults: Sequence[Fault]) -> str:
    """The plan for people."""
    return "\n".join(f"{fault.at:6.1f} s  {fault.component:<10} {WORDS[fault.kind]}" for fault in faults)


@dataclass
class Outcome:
    """How a run ended."""

    seed: int
    faults: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0
    accepted: int = 0
    seconds: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    verdict: Verdict | None = None
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether no job was lost, none ran twice, and it is known of each."""
        return self.verdict is not None and self.verdict.ok and not self.unknown

    @property
    def unknown(self) -> str:
        """What this run does not show, though nobody cut it short; empty where it does."""
        verdict = self.verdict
        if verdict is None or self.interrupted:
            return ""
        if not verdict.once and not verdict.requeued:
            return "NOTHING HAS RUN, which shows nothing: `squeue` and `sinfo` say why"
        if verdict.waiting:
            return (
                "NOT KNOWN of those in the queue: --partition names one with free CPUs, or `squeue` says what they lack"
            )
        return ""

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seed": self.seed,
            "ok": self.ok,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
            "faults": self.faults,
            "submissions": self.attempts,
            "accepted": self.accepted,
            "jobs": self.verdict.as_data() if self.verdict else None,
            "gaps": [{"at": round(at, 1), "seconds": round(length, 1)} for at, length in self.gaps],
        }


class Chaos:
    """Faults in one cluster."""

    def __init__(self, kubectl: Kubectl, stack: Stack, report: Report, *, user: str) -> None:
        self._kubectl = kubectl
        self._namespace = stack.config.cluster.namespace
        self._report = report
        self._jail = Jail(kubectl, stack, user)
        # Slurm itself is to say whose they are: with a line break in a job's name anybody writes a line of a list.
        self._own = f"--user={stack.config.users[user].uid}"

    def run(
        self, faults: Sequence[Fault], seconds: float, *, seed: int, rate: float, options: Sequence[str]
    ) -> Outcome:
        """Break and submit for so long; what Ctrl-C cuts short is judged, too. Nothing of ours stays."""
        outcome = Outcome(seed=seed)
        stream = Stream(self._jail, token=secrets.token_hex(3), seed=seed, rate=rate, options=options)
        try:
            try:
                stream.begin()
                self._break(stream, faults, seconds, outcome)
            except KeyboardInterrupt:
                outcome.interrupted = True
            finally:
                outcome.seconds = stream.seconds
                stream.stop()
            submitted = stream.submitted
            outcome.attempts = len(submitted.accepted) + len(submitted.unknown)
            outcome.gaps = gaps(submitted.times.values(), outcome.seconds)
            outcome.verdict = self._judged(stream, _INTERRUPTED_SETTLE if outcome.interrupted else SETTLE)
            verdict = outcome.verdict
            sorted_ = (verdict.once, verdict.requeued, verdict.lost, verdict.twice, verdict.unrecorded, verdict.waiting)
            outcome.accepted = sum(map(len, (*sorted_, *verdict.otherwise.values())))
        finally:
            self._clean(stream)
        return outcome

    def _break(self, stream: Stream, faults: Sequence[Fault], seconds: float, outcome: Outcome) -> None:
        with self._report.step(f"{len(faults)} faults in {duration_text(seconds)}") as step:
            for number, fault in enumerate(faults):
                while stream.seconds < fault.at:
                    step.progress(number, len(faults), f"{len(stream.submitted.accepted)} jobs accepted")
                    time.sleep(min(0.5, max(0.0, fault.at - stream.seconds)))
                done = self._do(fault)
                outcome.faults.append({"at": round(stream.seconds, 1), "component": fault.component, **done})
            while stream.seconds < seconds:
                time.sleep(0.5)

    def _is_ready(self, component: str) -> bool:
        with suppress(Failure):
            found = self._kubectl.items("pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={component}")
            return any(pod.ready for pod in map(pod_of, found))
        return False

    def _has_two_controllers(self) -> bool:
        """As the cluster has it: the stack file may be ahead of it."""
        with suppress(Failure):
            found = self._kubectl.items("statefulset", CONTROLLER, "-n", self._namespace)
            return any(item["spec"].get("replicas", 1) > 1 for item in found)
        return False

    def _do(self, fault: Fault) -> dict[str, Any]:
        """Break something; where there is nothing to break just now, that is told."""
        told = {"fault": WORDS[fault.kind]}
        try:
            found = self._kubectl.items(
                "pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={fault.component}"
            )
        except Failure as failure:
            return {**told, "skipped": failure.message}
        names = [pod.name for pod in map(pod_of, found) if pod.ready and pod.phase != LEAVING]
        if not names:
            return {**told, "skipped": "no pod of it was ready"}
        if fault.component == DATABASE and not self._is_ready(ACCOUNTING):
            return {**told, "skipped": "slurmdbd was not ready, which may be converting its tables"}
        pod = fault.pod(names)
        told["pod"] = pod
        if fault.kind in {DELETE, LOSE}:
            loses = fault.kind == LOSE and (fault.component != CONTROLLER or self._has_two_controllers())
            how = ("--force", "--grace-period=0") if loses else ()
            done = self._kubectl.run("delete", "pod", pod, "-n", self._namespace, "--wait=false", *how, check=False)
        else:
            place = ("exec", "-n", self._namespace, pod, "-c", CONTAINERS[fault.component], "--")
            words = (
                ("/usr/bin/python3", "-ISc", _KILL, "mariadbd")
                if fault.kind == CRASH
                else ("/bin/sh", "-c", "kill -TERM 1")
            )
            done = self._kubectl.run(*place, *words, check=False, seconds=20)
            # The connection may end with what was killed.
            if fault.kind == CRASH and done.returncode == 0 and not done.stdout.strip():
                return {**told, "skipped": "no such process"}
        return told if done.returncode in {0, 137, 143} else {**told, "skipped": complaint(done)[-200:]}

    # --- What became of the jobs ----------------------------------------------------------------------------------

    def _judged(self, stream: Stream, patience: float) -> Verdict:
        until = time.monotonic() + patience
        with self._report.step("Waiting for the jobs") as step:
            while True:
                queued = self._queued(stream)
                if queued is not None:
                    step.progress(0, 0, f"{len(queued)} in the queue")
                    records = self._records(stream)
                    if not queued or time.monotonic() > until:
                        verdict = judge(stream.submitted, stream.marks(), records, queued)
                        # slurmctld hands over records of a slurmdbd that was away later.
                        if verdict.ok or time.monotonic() > until:
                            return verdict
                elif time.monotonic() > until:
                    raise Failure(
                        f"slurmctld has not answered for {patience:g} s: nobody knows what became of the jobs",
                        hint="`slurmstack doctor` says what is wrong",
                    )
                time.sleep(_POLL)

    def _queued(self, stream: Stream) -> list[int] | None:
        """Ids of our jobs in the queue; None where nobody answers."""
        shown = in_controller(
            self._kubectl, self._namespace, "squeue", self._own, "--all", "--noheader", "--format=%A|%j|%T", seconds=30
        )
        if shown.returncode != 0:
            return None
        return [record.job for record in records_in(shown.stdout, stream.prefix)]

    def _records(self, stream: Stream) -> list[Record]:
        minutes = int(stream.seconds / 60) + 10
        which = (self._own, "--allocations", "--duplicates", f"--starttime=now-{minutes}minutes")
        how = ("--noheader", "--parsable2", "--format=JobIDRaw,JobName,State")
        shown = in_controller(self._kubectl, self._namespace, "sacct", *which, *how, seconds=60)
        return records_in(shown.stdout, stream.prefix) if shown.returncode == 0 else []

    def _clean(self, stream: Stream) -> None:
        with suppress(Failure), self._report.step("Removing jobs and marks"):
            queued = self._queued(stream)
            if queued is None:
                self._report.info(f"slurmctld does not answer: jobs called {stream.prefix}N may stay in the queue")
            if queued:
                in_controller(self._kubectl, self._namespace, "scancel", self._own, *map(str, queued), seconds=60)
            stream.clean()


def text(outcome: Outcome) -> str:
    """For people."""
    done = [fault for fault in outcome.faults if "skipped" not in fault]
    lines = [
        f"seed {outcome.seed}: {len(done)} faults in {duration_text(outcome.seconds)}"
        + (", interrupted" if outcome.interrupted else ""),
        *(
            f"  {fault['at']:6.1f} s  {fault.get('pod', fault['component'])}: {fault['fault']}"
            + (f" (not done: {fault['skipped']})" if "skipped" in fault else "")
            for fault in outcome.faults
        ),
        f"jobs: {outcome.accepted} accepted of {outcome.attempts} submitted",
    ]
    if (verdict := outcome.verdict) is not None:
        lines.append(f"  {len(verdict.once)} ran once, {len(verdict.requeued)} were requeued and told so")
        lines += [
            f"  {len(jobs)} ended as {state}: {listed(jobs)}" for state, jobs in sorted(verdict.otherwise.items())
        ]
        if verdict.waiting:
            lines.append(f"  {len(verdict.waiting)} were still in the queue: {listed(verdict.waiting)}")
        wrong = {"LOST": verdict.lost, "RAN TWICE": verdict.twice, "NOT IN ACCOUNTING": verdict.unrecorded}
        for word, jobs in wrong.items():
            lines.append(f"  {len(jobs)} {word}{': ' + listed(jobs) if jobs else ''}")
    lines += [f"  {outcome.unknown}"] * bool(outcome.unknown)
    worst = [f"{length:.0f} s (from {at:.0f} s)" for at, length in outcome.gaps[:5]]
    lines.append(f"longest without an accepted job: {', '.join(worst) or f'less than {GAP:g} s'}")
    return "\n".join(lines)
