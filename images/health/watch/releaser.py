"""Does what `release.py` plans, one move after the other, in a thread of its own: no drain waits for it.

Before each move it asks Kubernetes and Slurm again, and does nothing if anything is not as it was seen. A Node is
changed only in the version that was looked at. Before a machine is released everything is read anew, and the plan made
again, so that the limit holds however old the copy of the cluster is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final

from images.common.kubernetes import WORKER_PODS, KubeError, Object
from images.health.slurm import Slurm, SlurmError
from images.health.watch.kube_write import WritingKube
from images.health.watch.kubernetes import Teller
from images.health.watch.machines import (
    KEEP,
    OWN_WORDS,
    RELEASED_BY,
    RELEASED_FOR,
    Machine,
    Machines,
    Told,
    machine_of,
    place_of,
)
from images.health.watch.release import Move, Plan, Rules, Step, plan
from images.health.watch.view import NodeView

TRY_AGAIN_SECONDS: Final = 30.0
"""Until a move is tried again that did not change what is seen."""

_EVENTS: Final[Mapping[Step, str]] = {
    Step.FORGET: "SlurmMachineWell",
    Step.KEEP: "SlurmMachineKept",
    Step.TAKE_BACK: "SlurmMachineTakenBack",
    Step.MARK: "SlurmMachineMarked",
    Step.EVICT: "SlurmWorkerEvicted",
    Step.RELEASE: "SlurmMachineReleased",
}
_WARNINGS: Final = frozenset({Step.KEEP, Step.MARK, Step.EVICT, Step.RELEASE})


class Releaser:
    """Releases machines, and takes them back."""

    def __init__(
        self,
        *,
        kube: WritingKube,
        slurm: Slurm,
        copies: Machines,
        rules: Rules,
        log: Callable[[str], None],
        events: Teller | None = None,
        dry_run: bool = False,
        pool: Executor | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`pool`: one thread, as moves follow each other. `wall`: the clock that slurmctld has too."""
        self._kube = kube
        self._slurm = slurm
        self._copies = copies
        self._rules = rules
        self._log = log
        self._events = events
        self._dry_run = dry_run
        self._pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="release")
        self._wall = wall
        self._running: Future[None] | None = None
        self._tried: dict[tuple[Step, str, str], float] = {}
        self._told: dict[tuple[Step, str, str], str] = {}
        self._held: frozenset[str] = frozenset()

    def saw(self, views: Sequence[NodeView], now: float) -> None:
        """The nodes as they are. While moves are under way, the next ones wait."""
        if not self._copies.synced or not (self._running is None or self._running.done()):
            return
        if self._running is not None:
            self._running.result()
        wanted = plan(views, self._copies.pods(), self._copies.machines(), self._rules, now)
        self._tell_held(wanted)
        self._forget(wanted)
        due = [move for move in wanted.moves if now - self._tried.get(move.key, float("-inf")) >= TRY_AGAIN_SECONDS]
        for move in due:
            self._tried[move.key] = now
        self._running = self._pool.submit(self._make, due, list(views)) if due else None

    def finish(self) -> None:
        """Wait for moves that are under way."""
        if self._running is not None:
            self._running.result()

    def _make(self, moves: Sequence[Move], views: Sequence[NodeView]) -> None:
        for move in moves:
            why = move.why if move.why.startswith(move.check) else f"{move.check}: {move.why}"
            what = f"{move.step.value} machine {move.machine} (node {move.worker}): {why}"
            if self._dry_run:
                self._once(move, f"would {what}")
                continue
            try:
                done = self._move(move, views)
            except (KubeError, SlurmError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
                self._once(move, f"cannot {what}: {error}")
                continue
            if done:
                self._log(what)
                self._tell(move, what)

    def _tell(self, move: Move, what: str) -> None:
        if self._events is not None and move.worker:
            reason, warning = _EVENTS[move.step], move.step in _WARNINGS
            self._events.event(move.worker, reason=reason, message=what, warning=warning, now=self._wall())

    def _move(self, move: Move, views: Sequence[NodeView]) -> bool:
        """Do it; False: there is nothing to do any more. Raises KubeError, SlurmError, and what `machine_of` does."""
        if move.step is Step.RELEASE:
            return self._release(move, views)
        machine = machine_of(self._kube.node(move.machine))
        if not self._is_still_so(move, machine):
            return False
        if move.step is Step.FORGET:
            self._kube.mark_node(move.machine, machine.version, annotations={KEEP: None})
            return True
        if move.step is Step.MARK:
            return self._mark(move, machine)
        return self._evict(move, views) if move.step is Step.EVICT else self._let_go(move, machine)

    def _is_still_so(self, move: Move, machine: Machine) -> bool:
        """Whether the annotations are as they were seen, and the machine is cordoned or not as the move has it."""
        if move.step is Step.FORGET:
            return machine.keep == move.check and not machine.released_for
        ours = machine.is_released_by(self._rules.namespace) and machine.released_for == move.check
        return ours and machine.cordoned is not (move.step is Step.KEEP)

    def _let_go(self, move: Move, machine: Machine) -> bool:
        """Take back all that says that the machine is released: first the condition, which others act on."""
        if machine.conditions.get(self._rules.condition, "").startswith(OWN_WORDS):
            self._set_condition(move, "False")
            machine = machine_of(self._kube.node(move.machine))
            if not self._is_still_so(move, machine):
                return False
        gone: dict[str, str | None] = {RELEASED_FOR: None, RELEASED_BY: None}
        if move.step is Step.TAKE_BACK:
            self._kube.mark_node(move.machine, machine.version, annotations=gone, cordon=False)
        else:
            kept = {KEEP: machine.keep or move.check}
            self._kube.mark_node(move.machine, machine.version, annotations=gone | kept)
        return True

    def _release(self, move: Move, views: Sequence[NodeView]) -> bool:
        """Cordon a machine, if a look at everything as it is now says the same."""
        nodes = _by_name(self._kube.list_all("/api/v1/nodes")[0])
        path = f"/api/v1/namespaces/{self._rules.namespace}/pods"
        pods = _by_name(self._kube.list_all(path, selector=WORKER_PODS)[0])
        machines = {name: machine_of(node) for name, node in nodes.items()}
        places = {name: place_of(pod) for name, pod in pods.items()}
        again = plan(views, places, machines, self._rules, self._wall())
        if not any((other.step, other.machine) == (move.step, move.machine) for other in again.moves):
            return False
        seen = {view.name: view for view in views}
        workers = [name for name, place in places.items() if place.node == move.machine]
        if not all(self._is_free(seen[name]) for name in workers):
            return False
        annotations = {RELEASED_FOR: move.check, RELEASED_BY: f"{self._rules.namespace}/{move.worker}"}
        self._kube.mark_node(move.machine, machines[move.machine].version, annotations=annotations, cordon=True)
        return True

    def _evict(self, move: Move, views: Sequence[NodeView]) -> bool:
        seen = {view.name: view for view in views}
        if not self._is_free(seen[move.worker]):
            return False
        self._kube.evict(move.worker, move.uid)
        return True

    def _is_free(self, seen: NodeView) -> bool:
        """Whether the node is still drained for what was seen, and no job has it. Raises SlurmError."""
        now = self._slurm.node(seen.name)
        as_seen = now is not None and now.reason == seen.reason and now.is_drained_by_us and now.is_quiet
        return as_seen and not self._slurm.jobs_of(seen.name)

    def _mark(self, move: Move, machine: Machine) -> bool:
        if self._rules.condition in machine.conditions:
            return False
        self._set_condition(move, "True")
        return True

    def _set_condition(self, move: Move, status: str) -> None:
        told = Told(status=status, reason="SlurmHealth", message=f"{OWN_WORDS}{move.worker}: {move.why}")
        self._kube.set_condition(move.machine, self._rules.condition, told, at=self._wall())

    def _once(self, move: Move, line: str) -> None:
        if self._told.get(move.key) != line:
            self._told[move.key] = line
            self._log(line)

    def _forget(self, wanted: Plan) -> None:
        """What is no longer wished for is tried at once, and told again, when it comes back."""
        keys = {move.key for move in wanted.moves}
        self._tried = {key: at for key, at in self._tried.items() if key in keys}
        self._told = {key: line for key, line in self._told.items() if key in keys}

    def _tell_held(self, wanted: Plan) -> None:
        held = frozenset(move.machine for move in wanted.held)
        if held and held != self._held:
            names = ", ".join(sorted(held)[:20]) + (f", and {len(held) - 20} more" if len(held) > 20 else "")
            self._log(f"not released, as no more than {self._rules.max_unavailable} may be unavailable: {names}")
        self._held = held


def _by_name(items: Sequence[Object]) -> dict[str, Object]:
    return {str(item["metadata"]["name"]): item for item in items}
