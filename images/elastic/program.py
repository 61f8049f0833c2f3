"""elastic: makes and ends the pods of worker pools as Slurm's power saving wants it, and as new templates need it.

A pod of its own, of which there must be one at a time. Slurm decides: it powers a node up for a job and down when it
has been idle. ResumeProgram and SuspendProgram have this program look at once (native/await-nodes.c); what is to be
done it sees in Slurm's records (`decide.py`). In every cluster it replaces the pods of fixed pools whose template has
changed, as their nodes fall idle (`rolls.py`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NoReturn

from images.common.http_server import Answer, start_server
from images.common.kubernetes import WORKER_PODS, Follower, Kube, Object, own_namespace
from images.common.process import RefusedError, end_with_threads, program
from images.common.slurm_node import ROLLS, ControllerUnreachableError, waits_for_topology
from images.common.slurm_records import NotUnderstoodError, expand
from images.common.wait import Clock, Reminder
from images.elastic.decide import Plan, View, decide
from images.elastic.nodes import TIMEOUT_SECONDS, Node, Nodes, Pod, Pods, Pool, pod_of, pool_of
from images.elastic.rolls import FixedPool, drained_for_it, fixed_pool_of, is_needed, roll
from images.elastic.starts import Starts

QUICK_SECONDS: Final = 0.5  # between two looks at least, whoever asks for one; and while jobs wait for nodes that come
SHARE: Final = 2.0  # where a look takes long, with thousands of nodes: so many times as long passes until the next
ROLLING_SECONDS: Final = 2.0  # while nodes of fixed pools are waited for, or slurmctld or the API server is
USUAL_SECONDS: Final = 10.0  # while nothing happens: who starts or ends nodes has us look at once
LONGEST_REFUSAL_SECONDS: Final = 30.0  # between two tries of what is refused: a quota, an admission, a record in use
PORT: Final = 8818
SILENT_SECONDS: Final = 2 * TIMEOUT_SECONDS  # jobs wait without a look: one in which slurmctld is slow takes less
ORDER: Final = {"drain": 1, "down": 1, "delete": 2, "renew": 2, "create": 4, "place": 4, "start": 5}
"""In which things are done; other changes of nodes are 3. Records are made anew before a drain is lifted, as they may
have other CPUs, memory and GPUs. Pods come last, for which Kubernetes may take long."""
MOST_WAITING: Final = 500
"""Jobs that are told at once when their nodes are there. One beyond them starts when Slurm itself looks, up to half a
minute later: an array of thousands on a few nodes must not take thousands of threads."""


@dataclass
class Ready:
    """Which nodes can run jobs, for those that wait for it. `wake` asks for a look."""

    wake: Callable[[], None]
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_WAITING))
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    _looks: int = 0

    def put(self, nodes: Mapping[str, Node]) -> None:
        """What the latest look has seen."""
        with self._changed:
            self._nodes, self._looks = nodes, self._looks + 1
            self._changed.notify_all()

    def answer(self, path: str) -> Answer:
        """To slurmctld's programs: to `/ready/LIST` when these nodes are up or one will not be; `/look` has it look.

        Nobody needs to prove who he is: whether nodes are up everybody sees in sinfo.
        """
        _, what, *hosts = path.split("/")
        status = HTTPStatus.OK if what in {"look", "healthz"} else HTTPStatus.NOT_FOUND
        if what == "look":
            self.wake()
        elif what == "ready" and hosts:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            if self._slots.acquire(blocking=False):
                try:
                    status = self._wait(frozenset(expand(hosts[0])))
                finally:
                    self._slots.release()
        return Answer("text/plain", "", status)

    def _wait(self, names: Collection[str]) -> HTTPStatus:
        """A look that began before the question may have seen what was before the job had them: the next decides."""
        with self._changed:
            began = self._looks
            while True:
                nodes = [self._nodes.get(name) for name in names]
                if all(node is not None and node.is_up for node in nodes):
                    return HTTPStatus.OK
                if self._looks == began:  # of nodes that are up nothing is to be learned, and a look takes a core
                    self.wake()
                failed = any(node is None or node.is_down or (node.is_off and not node.is_awaited) for node in nodes)
                if (self._looks > began + 1 and failed) or not self._changed.wait(SILENT_SECONDS):
                    return HTTPStatus.GONE


@dataclass(kw_only=True)
class Rounds:
    """Looks, decides and does. One thread."""

    nodes: Nodes
    pods: Pods
    pools: Callable[[], Mapping[str, Pool | None]]
    sets: Callable[[], Mapping[str, FixedPool | None]]
    there: Callable[[], Mapping[str, Pod]]
    synced: Callable[[], bool]
    log: Callable[[str], None]
    ready: Ready
    now: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic  # on a clock that nobody sets
    # What is not tried again yet: until when, after which pause, and why.
    _refused: dict[tuple[str, str], tuple[float, float, str]] = field(default_factory=dict)
    _owes: bool = True  # nodes may be drained for their new pods, of which only Slurm knows
    _starts: Starts = field(default_factory=Starts)

    def keep_looking(self, wake: threading.Event) -> NoReturn:
        """Look for ever."""
        clock = Clock()
        reminder = Reminder(self.log, clock)
        while True:
            wake.clear()
            try:
                rest, pause = self.look()
                reminder = Reminder(self.log, clock)
            except (ControllerUnreachableError, NotUnderstoodError) as error:
                reminder.waiting(f"slurmctld: {error}")
                rest = pause = ROLLING_SECONDS
            time.sleep(rest)
            wake.wait(pause - rest)

    def look(self) -> tuple[float, float]:
        """One look; seconds until the next one at the earliest, and where nobody asks. Raises as `Nodes.read`."""
        if self.synced() and not (self.pools() or self._owes or is_needed(self.sets(), self.there())):
            return QUICK_SECONDS, USUAL_SECONDS
        began = self.steady()
        nodes = self.nodes.read()
        self.ready.put(nodes)
        rest = min(max(QUICK_SECONDS, SHARE * (self.steady() - began)), USUAL_SECONDS)
        if not self.synced():
            return rest, max(rest, ROLLING_SECONDS)
        # Only now: before Kubernetes has told all, it would look as if there were no pools.
        now, sets, known, pods = self.now(), self.sets(), self.pools(), self.there()
        unread = {name for name, pool in known.items() if pool is None}
        nodes = {name: node for name, node in nodes.items() if name.rpartition("-")[0] not in unread}
        pods = {name: pod for name, pod in pods.items() if pod.pool not in unread}
        pools = {name: pool for name, pool in known.items() if pool is not None}
        rolling = is_needed(sets, pods)
        old = any(pod.pool in pools and pod.digest not in {"", pools[pod.pool].digest} for pod in pods.values())
        self._starts.see(nodes, now)
        refused = {of: refusal for (what, of), (_, _, refusal) in self._refused.items() if what == "start"}
        judge = partial(self._starts.judge, pods=pods, now=now, refused=refused)
        closed = {name: judge(pool, pool.of(nodes)) for name, pool in pools.items()}
        ends = self.nodes.ends() if rolling or old else {}
        view = View(pools=pools, nodes=nodes, pods=pods, now=now, closed=closed, ends=ends)
        plan = decide(view)
        for fixed in sets.values():
            if fixed is not None:
                roll(plan, view, fixed)
        self._owes = rolling or any(drained_for_it(node) for node in nodes.values())
        moves = any(node.is_coming or node.goes_down or waits_for_topology(node) for node in nodes.values())
        hurries = self._do(plan, pools) or moves
        return rest, max(rest, 0.0 if hurries else ROLLING_SECONDS if self._owes else USUAL_SECONDS)

    def _do(self, plan: Plan, pools: Mapping[str, Pool]) -> bool:
        """Whether anything was done."""
        kinds = {what for what, _ in plan.todo}
        now = self.nodes.read() if "drain" in kinds else {}
        there = self.pods.there() if "down" in kinds else None
        wanted = self.nodes.wanted() if kinds & {"delete", "renew"} else frozenset()
        done, gone = False, set[str]()

        def is_right(what: str, of: str, name: str) -> bool:
            """At this very moment, of what would end jobs."""
            if what == "drain" and of == ROLLS:  # who has drained one meanwhile had a reason
                return name in now and not (now[name].is_drained or now[name].is_down)
            if what == "drain":  # else Slurm gives back or ends the jobs that it has got meanwhile (node_mgr.c)
                return name in now and now[name].has_nothing
            if what == "down":
                return there is not None and name not in there
            return name not in (wanted if what in {"delete", "renew"} else gone)

        for what, of in sorted(plan.todo, key=lambda one: ORDER.get(one[0], 3)):
            names = [name for name in plan.todo[what, of] if is_right(what, of, name)]
            # In two halves: a pool without any record would have sbatch refuse what needs it.
            for part in filter(None, (names[::2], names[1::2]) if what == "renew" else (names,)):
                for step in ("delete", "create") if what == "renew" else (what,):
                    if not self._try(step, of, partial(self._step, step, of, part, pools)):
                        break
                    done = True
                    gone.update(part if step == "delete" else ())
        return bool(plan.end and self._try("end", "", partial(self.pods.end, plan.end))) or done

    def _step(self, what: str, of: str, names: list[str], pools: Mapping[str, Pool]) -> str:
        if make := {"create": self.nodes.create, "place": self.nodes.place, "start": self.pods.start}.get(what):
            return make(pools[of], names)
        return self.nodes.change(names, what, of)

    def _try(self, what: str, of: str, do: Callable[[], str]) -> bool:
        """Do what tells why it is refused; where it is, again after one second, two, four, at last thirty."""
        until, pause, logged = self._refused.get((what, of), (0.0, 0.5, ""))
        if self.steady() < until:
            return False
        refusal = do()
        if not refusal:
            self._refused.pop((what, of), None)
            return True
        pause = min(2 * pause, LONGEST_REFUSAL_SECONDS)
        self._refused[what, of] = (self.steady() + pause, pause, refusal)
        if refusal != logged:
            self.log(refusal)
        return False


def main() -> int:
    """Entry point."""
    with program("elastic") as log:
        end_with_threads(log)
        kube = Kube.in_cluster(own_namespace(), os.environ)
        if kube is None:
            raise RefusedError("there is no Kubernetes around this program")
        wake = threading.Event()

        def follow(path: str, extract: Callable[[Object], Any]) -> Follower[Any]:
            return Follower(kube, path, extract, log, selector=WORKER_PODS, changed=lambda _: wake.set())

        pods = follow(kube.path("pods"), pod_of)
        sets = follow(f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets", fixed_pool_of)
        pools = follow(kube.path("podtemplates"), partial(pool_of, log=log))
        rounds = Rounds(
            nodes=Nodes(log), pods=Pods(kube, log), pools=pools.values, sets=sets.values, there=pods.values,
            synced=lambda: pods.synced and sets.synced and pools.synced, log=log, ready=Ready(wake.set),
        )  # fmt: skip
        for one in (pods, sets, pools):
            one.start()
        start_server(rounds.ready.answer, PORT)
        rounds.keep_looking(wake)
