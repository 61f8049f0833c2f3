"""What the config agent does with a configuration: check it, publish it, make slurmctld read it, see that it lives.

A configuration is *pending* from the moment it is seen until slurmctld runs with it, *active* from then on, or
*rejected* with Slurm's own message, and then the one before it stays active. A slurmctld that ends although its trial
start went well may have ended by chance (a fault of its own in that moment), so it reads the same files once more.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from images.common.command import TIMED_OUT
from images.common.files import write_atomically
from images.common.slurm_conf import drop_partitions, keep_partitions
from images.controller.check import Verdict
from images.controller.configuration import READ, READY, STARTS, TOPOLOGY_CONF, Files, Store, stack_part, version_of
from images.controller.slurmctld import MOST_STARTS, ClusterId, Slurmctld
from images.controller.topology import LABELS_FILE, label_keys, render

SURVIVAL_SECONDS: Final = 5.0
"""How long slurmctld's port may refuse connections after `scontrol reconfigure`, which itself waits until it is done.

Not longer: a slurmctld that died is restarted by Kubernetes, ever more slowly while it finds the same files.
"""

PATIENCE_SECONDS: Final = 180.0
"""How long it may stay silent with its port open: it is alive, and waits for a slurmdbd that hangs, for example while
its database starts again (each of its requests ends after Slurm's MessageTimeout, 30 s here)."""

SURVIVAL_QUESTIONS: Final = 5
"""How often it is asked at least. A dead slurmctld is told by a refused connection, at once; on a machine that is
overloaded a living one leaves question after question unanswered, each for seconds, and was taken for dead (measured
with sixteen times more work than cores)."""

DIED: Final = "slurmctld ended when it read this, although a trial start went well; its own log says why"

ENDED_AT_START: Final = (
    f"slurmctld ended each of {MOST_STARTS} times when it started with this, although a trial start went well"
)

SILENT: Final = (
    f"slurmctld lives, but has not answered for {PATIENCE_SECONDS:.0f} s since it read this; its own log may say "
    "what it waits for"
)

SETTLE_SECONDS: Final = 0.2
"""It has to answer a second time after this: one that dies of its configuration may still answer once."""

LOOK_AGAIN_SECONDS: Final = 30.0
"""Between two tries of files that something else than they themselves keeps from being taken."""

NO_ROOM: Final = (
    "the volume controller-state is full, so that it cannot be published; it is taken as soon as there is room. Make "
    "the volume larger: slurmstack:controller: {storage: ...}, then `slurmstack up`"
)


REGISTER_AGAIN_SECONDS: Final = 25.0
"""After slurmctld has started, or read its files, until the nodes with jobs register once more: a job whose launch was
lost with the slurmctld before runs nowhere, and stays RUNNING.

Their first registration leaves out jobs that slurmctld knows for less than BatchStartTimeout (10 s) and 10 s
(`_purge_missing_jobs` in its job_mgr.c), and the next one is 800 s away (20 pings, one each third of SlurmdTimeout).
"""


STATE_FILE: Final = Path("/run/slurmstack/configuration.json")
"""The status for people outside, who come by `kubectl exec`: where a network plugin enforces policies the API server
has no way to the port."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A configuration that was not taken, and why."""

    hash: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """Which configuration is in force, by the hashes by which the stack knows them."""

    active: str | None = None
    rejected: Rejection | None = None
    pending: str | None = None
    slurm_version: str = ""

    def to_json(self) -> str:
        """As sent, and in the file."""
        return json.dumps(asdict(self))


class Agent:
    """Applies configurations, one at a time."""

    def __init__(
        self, *, store: Store, check: Callable[[Files], Verdict], slurmctld: Slurmctld, log: Callable[[str], None],
        ready: Path = READY, read: Path = READ, starts: Path = STARTS, status_file: Path = STATE_FILE,
        last_words: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`last_words`: what slurmctld of this pod said before it ended last, empty where nobody knows."""
        self._store, self._check, self._slurmctld, self._log = store, check, slurmctld, log
        self._ready, self._read, self._starts, self._status_file = ready, read, starts, status_file
        self._last_words = last_words
        self.first_topology: Callable[[tuple[str, ...]], str] = lambda _keys: render({})
        """A topology.conf for the labels of these keys, for the moment when a tree is asked for."""
        self._clock = slurmctld.clock
        self._cluster_id = ClusterId()
        self._later: Files | None = None
        """Files that cannot be taken yet: slurmdbd is away, a limit too small, or the volume full."""
        self._again_at = 0.0
        """When these are tried again."""
        self._read_at = 0.0
        """When slurmctld is told again to read what is in force."""
        self._register_at: float | None = None
        """When nodes with jobs are to register once more."""
        self._start_at: float | None = None
        """When slurmctld may start once more with what it has ended with again and again."""
        self._died_of: str | None = None
        self.status = Status(slurm_version=slurmctld.version())
        self._update()

    def take(self, files: Files) -> None:
        """Apply a configuration that was just read or has just changed."""
        files = keep_partitions(self._with_topology(files), self.published())
        self._update(pending=stack_part(version_of(files)))
        self._later, self._again_at, self._read_at, self._died_of, self._start_at = None, 0.0, 0.0, None, None
        self._decide(files)

    def tick(self) -> None:
        """Notice that slurmctld came up with the configuration that waits for it, or that one can be taken at last."""
        version = self._store.current()
        if version is not None and not self._ready.exists():
            self._give_up(version)  # before all that waits for a slurmctld that runs
            return
        if self._later is not None and self._clock.now() >= self._again_at:
            files, before = self._later, self.published()
            if before and self._slurmctld.is_up() and self._slurmctld.too_small(files, before) is not None:
                self._look_again(files)  # for days, it may be: nothing else has to be tried meanwhile
            elif not before or self._slurmctld.is_up():
                self._later = None
                self._decide(files)
            return
        pending = self.status.pending
        if self._starts.exists() and self._slurmctld.is_up():
            self._starts.unlink(missing_ok=True)
            self._register_at = self._clock.now() + REGISTER_AGAIN_SECONDS
        elif self._register_at is not None and self._clock.now() >= self._register_at:
            self._register_at = None
            self._slurmctld.register_busy()
        if pending is None or pending != stack_part(version) or not self._slurmctld.is_up():
            return
        noted = self._noted()
        if noted == version:
            self._activate(pending)
        elif version is not None and self._clock.now() >= self._read_at:
            self._change(version, noted)

    def _give_up(self, version: str) -> None:
        """Reject what slurmctld has ended with at each start. It may have been by chance, so it starts again later.

        It does not go back to an older version by itself: one that lacks a partition would end that one's jobs.
        """
        now = self._clock.now()
        if self._start_at is None:
            words = self._last_words() or "(see the log of its container)"
            message = f"{ENDED_AT_START}. Its last words:\n{words}"
            stack = stack_part(version) or version
            self._update(active=None, pending=stack, rejected=Rejection(hash=stack, message=message))
            self._log(f"configuration {version} is rejected: {message}")
            self._start_at = now + LOOK_AGAIN_SECONDS
        elif now >= self._start_at:
            self._start_at = None
            self._ready.touch()

    def _noted(self) -> str:
        """The version that slurmctld has read for sure, when it started or since; empty where nobody knows."""
        try:
            return self._read.read_text(encoding="ascii")
        except FileNotFoundError:
            return ""

    def published(self) -> Files:
        """The files in force; none before the first."""
        current = self._store.current()
        return self._store.files(current) if current else {}

    def reload(self, topology: str) -> bool:
        """Make slurmctld read its files again, with this topology.conf. Whether it runs with it."""
        return self._reread("the new topology", lambda files: {**files, TOPOLOGY_CONF: topology})

    def drop(self, partitions: Collection[str]) -> bool:
        """Make slurmctld read its files without partitions that have left the stack. Whether it runs with them."""
        what = f"slurm.conf without {', '.join(partitions)}"
        return self._reread(what, lambda files: drop_partitions(files, partitions))

    def _reread(self, what: str, change: Callable[[Files], Files]) -> bool:
        """Change what the agent adds to the stack's files."""
        previous = self._store.current()
        if previous is None or self._noted() != previous or not self._slurmctld.is_up():
            return False  # what is published may have to wait for slurmdbd
        files = change(self._store.files(previous))
        version = version_of(files)
        obstacle = None
        if version != previous:
            obstacle = self._check(files).rejection(self._known(previous)) or self._publish(files)
        if obstacle:
            self._log(f"{what} is not taken, the one before goes on:\n{obstacle}")
            return False
        failure = self._reconfigure()
        if failure is None:
            return True
        self._log(f"{what} is taken back: {failure}")
        self._store.select(previous)
        self._update(pending=stack_part(previous))  # which it has to read again, whatever it has read by now
        return False

    def _with_topology(self, files: Files) -> Files:
        """The ConfigMap's files and, where they ask for one, the topology that is in force, or a first one."""
        if LABELS_FILE not in files:
            return files
        known = self.published().get(TOPOLOGY_CONF)
        first = self.first_topology(label_keys(files[LABELS_FILE])) if known is None else known
        return {**files, TOPOLOGY_CONF: first}

    def _decide(self, files: Files) -> None:
        """Check a configuration, and publish it. The very first time, only what stops slurmctld counts."""
        version, current, may_start = version_of(files), self._store.current(), self._ready.exists()
        if version == current and may_start:
            # Seen before: after a restart of this agent, or because a rejected change was taken back.
            self._update(rejected=None)
            self.tick()
            return
        verdict = self._check(files)
        obstacle = verdict.rejection(self._known(current) if current and verdict.complaints else verdict.complaints)
        if obstacle is None and version != current:
            obstacle = self._limit(files)
        runs = may_start and self._slurmctld.is_up()
        if obstacle is None and runs and (awaited := self._cluster_id.obstacle(files)):
            self._log(f"configuration {version} passed its check; before slurmctld reads it: waiting for {awaited}")
            self._look_again(files)
            return
        if obstacle is None and (obstacle := self._publish(files)):
            self._look_again(files)
        if obstacle is None and runs:
            self._change(version, current or "")
        elif obstacle is None:
            for line in verdict.complaints:
                self._log(f"slurmctld complains, but starts: {line}")
            self._log(f"configuration {version} passed its check; slurmctld will start with it")
            self._update(pending=stack_part(version), rejected=None)
        elif version == current:
            self._log(f"configuration {version} was in force before, but no longer passes its check; starting with it")
            self._log(obstacle)
        else:
            self._reject(version, obstacle)
        if not may_start:
            self._let_start(version)

    def _let_start(self, version: str) -> None:
        """Let slurmctld start with what is in force, if anything is."""
        current = self._store.current()
        if current is None:
            self._log("there is no earlier configuration to start with; waiting for a corrected one")
            return
        if current != version:
            self._log(f"starting with {current}, the last good configuration")
        self._ready.parent.mkdir(parents=True, exist_ok=True)
        self._ready.touch()

    def _change(self, version: str, previous: str) -> None:
        """Make a slurmctld that runs read what is in force. `previous`: what to go back to; empty: nothing."""
        files = self.published()
        awaited = failure = self._cluster_id.obstacle(files)
        if awaited is None:
            self._cluster_id.prepare(files)
            failure = self._reconfigure()
        if failure is None:
            self._activate(stack_part(version))
        elif awaited or not self._store.has(previous):
            self._read_at = self._clock.now() + LOOK_AGAIN_SECONDS
            self._log(f"slurmctld has not read configuration {version} yet: {failure}")
        elif failure is DIED and self._died_of != version:
            self._died_of = version
            self._look_again(files)
            self._force(previous)
            self._log(f"slurmctld ended when it read configuration {version}; once more when it is up with {previous}")
        else:
            self._go_back(version, previous, failure)

    def _limit(self, files: Files) -> str | None:
        """Which limit is too small, if any. Also for a slurmctld that is down: it forgets just as much at its start."""
        before = self.published()
        limit = self._slurmctld.too_small(files, before) if before else None
        if limit is not None:
            self._look_again(files)
        return limit

    def _look_again(self, files: Files) -> None:
        """Try files later, when slurmctld runs or waits for its first ones."""
        self._later, self._again_at = files, self._clock.now() + LOOK_AGAIN_SECONDS

    def _publish(self, files: Files) -> str | None:
        """Put files in force; why not, where the state volume is full."""
        try:
            self._store.publish(files)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return NO_ROOM
        return None

    def _reconfigure(self) -> str | None:
        """Make slurmctld read its files; why it does not run with them, if it does not.

        Where it gave no answer it is asked once more as soon as it answers at all: it may not have read them.
        """
        version = self._store.current() or ""
        self._read.unlink(missing_ok=True)
        failure = self._make_read()
        if failure is None:
            write_atomically(self._read, version, sync=False)
            self._register_at = self._clock.now() + REGISTER_AGAIN_SECONDS
        return failure

    def _make_read(self) -> str | None:
        result, asked = self._slurmctld.reconfigure(), 1
        started = self._clock.now()
        deadline, patience = started + SURVIVAL_SECONDS, started + PATIENCE_SECONDS
        questions = 0
        while result.ok or result.code == TIMED_OUT:
            if self._clock.now() >= deadline and questions >= SURVIVAL_QUESTIONS:
                return DIED
            questions += 1
            if self._survives():
                if result.ok or asked > 1:
                    return None
                result, asked = self._slurmctld.reconfigure(), asked + 1
            if self._slurmctld.listens():
                if self._clock.now() >= patience:
                    return SILENT
                deadline = self._clock.now() + SURVIVAL_SECONDS
            self._clock.sleep(0.05)
        return f"scontrol reconfigure: {result.message}"

    def _survives(self) -> bool:
        if not self._slurmctld.is_up():
            return False
        self._clock.sleep(SETTLE_SECONDS)
        return self._slurmctld.is_up()

    def _go_back(self, version: str, previous: str, message: str) -> None:
        """Take back what passed the check and failed all the same.

        Where slurmctld died of it, Kubernetes restarts it, and it must find the version before.
        """
        self._reject(version, message)
        self._force(previous)
        self._update(pending=stack_part(previous))
        self._log(f"the configuration before, {previous}, is in force again")

    def _force(self, version: str) -> None:
        """What slurmctld starts with next."""
        self._cluster_id.prepare(self._store.files(version))
        self._store.select(version)
        # It has starts of its own, also where the one before has had all of its.
        self._starts.unlink(missing_ok=True)
        self._ready.touch()

    def _known(self, version: str) -> tuple[str, ...]:
        """Complaints of the version in force, which a change is not to blame for."""
        return self._check(self._store.files(version)).complaints

    def _activate(self, version: str | None) -> None:
        rejected = self.status.rejected
        kept = rejected if rejected is not None and rejected.hash != version else None
        self._update(active=version, pending=None, rejected=kept)
        self._log(f"configuration {version} is active")

    def _reject(self, version: str, message: str) -> None:
        self._log(f"configuration {version} is rejected:\n{message}")
        current = self._store.current()
        # After a restart of this agent nothing is known to be active yet: the version on disk is what slurmctld has.
        is_active = stack_part(current) == self.status.active and self._noted() == current
        pending = stack_part(current) if current != version and not is_active else None
        rejected = Rejection(hash=stack_part(version) or version, message=message)
        self._update(pending=pending, rejected=rejected)

    def _update(self, **changes: Any) -> None:
        """Change the status, for who asks."""
        self.status = replace(self.status, **changes)
        with contextlib.suppress(OSError):  # a full volume must not end the agent
            write_atomically(self._status_file, self.status.to_json(), sync=False)
