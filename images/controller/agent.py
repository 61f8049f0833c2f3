"""What the config agent does with a configuration: check it, publish it, make slurmctld read it, see that it lives.

A configuration is *pending* from the moment it is seen until slurmctld runs with it, *active* from then on, or
*rejected* with Slurm's own message, and then the one before it stays active.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from images.common.command import TIMED_OUT, Result
from images.common.wait import Clock
from images.controller.check import Verdict
from images.controller.cluster_id import ClusterId
from images.controller.publish import READY, Files, Store, stack_part, version_of
from images.controller.server import Rejection, Status, StatusBoard
from images.controller.topology import LABELS_FILE, TOPOLOGY_CONF, label_keys, render

SURVIVAL_SECONDS: Final = 5.0
"""How long slurmctld may take to answer again after `scontrol reconfigure`, which itself waits until it is done.

Not longer: a slurmctld that died is restarted by Kubernetes, ever more slowly while it finds the same files.
"""

SURVIVAL_QUESTIONS: Final = 5
"""How often it is asked at least. A dead slurmctld is told by a refused connection, at once; on a machine that is
overloaded a living one leaves question after question unanswered, each for seconds, and was taken for dead (measured
with sixteen times more work than cores)."""

DIED: Final = "slurmctld ended when it read this, although a trial start went well; its own log says why"

SETTLE_SECONDS: Final = 0.2
"""It has to answer a second time after this: one that dies of its configuration may still answer once."""


class Control(Protocol):
    """The part of slurmctld's control that the agent needs."""

    def is_up(self) -> bool:
        """Whether slurmctld answers."""
        ...

    def reconfigure(self) -> Result:
        """Make it read its files again."""
        ...


class Agent:
    """Applies configurations, one at a time."""

    def __init__(
        self,
        *,
        store: Store,
        check: Callable[[Files], Verdict],
        slurmctld: Control,
        board: StatusBoard,
        log: Callable[[str], None],
        ready: Path = READY,
        clock: Clock | None = None,
        first_topology: Callable[[tuple[str, ...]], str] = lambda _keys: render({}),
        cluster_id: ClusterId | None = None,
    ) -> None:
        """`first_topology`: a topology.conf for the labels of these keys, for the moment when a tree is asked for."""
        self._cluster_id = cluster_id or ClusterId()
        self._held: Files | None = None
        self._first_topology = first_topology
        self._store = store
        self._check = check
        self._slurmctld = slurmctld
        self._board = board
        self._log = log
        self._ready = ready
        self._clock = clock or Clock()
        self._complaints: dict[str, tuple[str, ...]] = {}

    def take(self, files: Files) -> None:
        """Apply a configuration that was just read or has just changed."""
        files = self._with_topology(files)
        version = version_of(files)
        self._update(pending=stack_part(version))
        self._held = None
        if self._ready.exists():
            self._apply(version, files)
        else:
            self._boot(version, files)

    def tick(self) -> None:
        """Notice that slurmctld came up with the configuration that waits for it, or that one can be taken at last."""
        if self._held is not None and self._cluster_id.obstacle(self._held) is None:
            files, self._held = self._held, None
            self._apply(version_of(files), files)
            return
        status = self._board.get()
        if status.pending is None or not self._slurmctld.is_up():
            return
        if status.pending == stack_part(self._store.current()):
            self._activate(status.pending)

    def published(self) -> Files:
        """The files in force; none before the first."""
        current = self._store.current()
        return self._store.files(current) if current else {}

    def reload(self, topology: str) -> bool:
        """Make slurmctld read its files again, with this topology.conf. Whether it runs with it."""
        previous = self._store.current()
        if previous is None or not self._slurmctld.is_up():
            return False
        files = {**self._store.files(previous), TOPOLOGY_CONF: topology}
        version = version_of(files)
        if version != previous:
            verdict = self._check(files)
            self._complaints[version] = verdict.complaints
            rejection = verdict.rejection(self._known(previous))
            if rejection is not None:
                self._log(f"the new topology is not taken, the one before goes on:\n{rejection}")
                return False
            self._store.publish(files)
        result = self._slurmctld.reconfigure()
        if (result.ok or result.code == TIMED_OUT) and self._survives():
            return True
        self._log(f"the new topology is taken back: {DIED if result.ok else result.message}")
        self._store.select(previous)
        return False

    def _with_topology(self, files: Files) -> Files:
        """The ConfigMap's files and, where they ask for one, the topology that is in force, or a first one."""
        if LABELS_FILE not in files:
            return files
        known = self.published().get(TOPOLOGY_CONF)
        first = self._first_topology(label_keys(files[LABELS_FILE])) if known is None else known
        return {**files, TOPOLOGY_CONF: first}

    def _boot(self, version: str, files: Files) -> None:
        """Decide what slurmctld starts with. The very first time, only what stops slurmctld counts."""
        current = self._store.current()
        verdict = self._check(files)
        self._complaints[version] = verdict.complaints
        rejection = verdict.rejection(self._known(current) if current else verdict.complaints)
        if rejection is None:
            for line in verdict.complaints:
                self._log(f"slurmctld complains, but starts: {line}")
            self._store.publish(files)
            self._log(f"configuration {version} passed its check; slurmctld may start with it")
        elif current is None:
            self._reject(version, rejection)
            self._log("there is no earlier configuration to start with; waiting for a corrected one")
            return
        elif current == version:
            self._log(f"configuration {version} was in force before, but no longer passes its check; starting with it")
            self._log(rejection)
        else:
            self._reject(version, rejection)
            self._log(f"starting with {current}, the last good configuration")
        self._ready.parent.mkdir(parents=True, exist_ok=True)
        self._ready.touch()

    def _apply(self, version: str, files: Files) -> None:
        """Change the configuration of a slurmctld that runs, or is about to."""
        previous = self._store.current()
        if version == previous:
            # Seen before: after a restart of this agent, or because a rejected change was taken back.
            self._update(rejected=None)
            self.tick()
            return
        verdict = self._check(files)
        self._complaints[version] = verdict.complaints
        rejection = verdict.rejection(self._known(previous) if previous else ())
        if rejection is not None:
            self._reject(version, rejection)
            return
        if not self._slurmctld.is_up():
            self._store.publish(files)
            self._log(f"configuration {version} is published; slurmctld is not up and will start with it")
            self._update(rejected=None)
            return
        if obstacle := self._cluster_id.obstacle(files):
            self._log(f"configuration {version} passed its check; before slurmctld reads it: waiting for {obstacle}")
            self._held = files
            return
        self._cluster_id.prepare(files)
        self._store.publish(files)
        result = self._slurmctld.reconfigure()
        if not result.ok and result.code != TIMED_OUT:
            self._go_back(version, previous, f"scontrol reconfigure: {result.message}")
        elif self._survives():
            self._activate(stack_part(version))
        else:
            self._go_back(version, previous, DIED)

    def _survives(self) -> bool:
        deadline = self._clock.now() + SURVIVAL_SECONDS
        questions = 0
        while self._clock.now() < deadline or questions < SURVIVAL_QUESTIONS:
            questions += 1
            if self._slurmctld.is_up():
                self._clock.sleep(SETTLE_SECONDS)
                if self._slurmctld.is_up():
                    return True
            self._clock.sleep(0.05)
        return False

    def _go_back(self, version: str, previous: str | None, message: str) -> None:
        """Take back what passed the check and failed all the same.

        Where slurmctld died of it, Kubernetes restarts it, and it must find the version before.
        """
        self._reject(version, message)
        if previous is not None:
            self._cluster_id.prepare(self._store.files(previous))
            self._store.select(previous)
            self._update(pending=stack_part(previous))
            self._log(f"the configuration before, {previous}, is in force again")

    def _known(self, version: str) -> tuple[str, ...]:
        """Complaints of the version in force, which a change is not to blame for."""
        if version not in self._complaints:
            self._complaints = {version: self._check(self._store.files(version)).complaints}
        return self._complaints[version]

    def _activate(self, version: str | None) -> None:
        rejected = self._board.get().rejected
        kept = rejected if rejected is not None and rejected.hash != version else None
        self._board.set(replace(self._board.get(), active=version, pending=None, rejected=kept))
        self._log(f"configuration {version} is active")

    def _reject(self, version: str, message: str) -> None:
        self._log(f"configuration {version} is rejected:\n{message}")
        status, current = self._board.get(), self._store.current()
        # After a restart of this agent nothing is known to be active yet: the version on disk is what slurmctld has.
        pending = stack_part(current) if current != version and stack_part(current) != status.active else None
        rejected = Rejection(hash=stack_part(version) or version, message=message)
        self._board.set(replace(status, pending=pending, rejected=rejected))

    def _update(self, **changes: str | None) -> None:
        self._board.set(replace(self._board.get(), **changes))  # type: ignore[arg-type]


def initial_status(slurm_version: str) -> Status:
    """Before anything is known."""
    return Status(slurm_version=slurm_version)
