"""elastic: makes and ends the pods of worker pools as Slurm's power saving wants it, and as new templates need it.

A pod of its own, of which there must be one at a time. Slurm decides: it powers a node up for a job and down when it
has been idle. ResumeProgram and SuspendProgram have this program look at once (native/await-nodes.c); what is to be
done it sees in Slurm's records (`decide.py`), so that a call too many or too few changes nothing.

In every cluster it replaces the pods of fixed pools whose template has changed, as their nodes fall idle.

The rights that the ServiceAccount needs, in the cluster's namespace: `list`, `watch`, `delete` of pods; `list`, `watch`
of statefulsets. For elastic pools: `create` of pods; `list`, `watch` of podtemplates.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import parse_qs, urlsplit

from images.common import http_server
from images.common.kubernetes import WORKER_PODS, Follower, Kube, KubeError, Object, own_namespace
from images.common.process import RefusedError, end_with_threads, program
from images.common.slurm_node import ROLLS
from images.common.slurm_records import expand
from images.common.wait import Clock, Reminder
from images.elastic.decide import Plan, View, decide, drained_for_it, roll
from images.elastic.nodes import TIMEOUT_SECONDS, Nodes, Pods, SlurmError
from images.elastic.starts import Starts
from images.elastic.view import LONGEST_TROUBLE, FixedPool, Node, Pod, Pool, fixed_pool_of, pod_of, pools_read

QUICK_SECONDS: Final = 0.5
"""Between two looks at least, whoever asks for one; and while nodes come, as jobs wait for the one that sees them."""
SHARE: Final = 4.0
"""Where it takes long to see thousands of nodes, this many times as long passes until they are looked at again."""
ROLLING_SECONDS: Final = 2.0
"""While nodes of fixed pools are waited for, or slurmctld or the API server is."""
USUAL_SECONDS: Final = 10.0
"""While nothing happens to elastic pools. Who starts or ends nodes has us look at once."""
ROLLED_SECONDS: Final = 60.0
"""Where there are no elastic pools, and all pods are new: then only Kubernetes is looked at, whose events wake us."""
LONGEST_REFUSAL_SECONDS: Final = 30.0
"""Between two tries of what is refused (a quota, an admission, a record that Slurm does not let go)."""

PORT: Final = 8818
SILENT_SECONDS: Final = 2 * TIMEOUT_SECONDS
"""Without a look, for which jobs wait: slurmctld does not answer then, and nobody knows of any node. A round in which
one of Slurm's commands, or Kubernetes, is slow takes less."""

MOST_WAITING: Final = 500
"""Jobs that are told at once when their nodes are there. A job beyond them starts when Slurm itself looks, up to half a
minute later: an array of thousands on a few nodes must not take thousands of threads."""

_MOST_NODES: Final = 65536
_NO_POOL_S: Final = re.compile(r"[^\d,-]|\d{6}")
"""In the brackets of a host list: a pool has 5,000 nodes at most."""

Value = TypeVar("Value")


@dataclass(kw_only=True)
class Ready:
    """Which nodes can run jobs, for those that wait for it."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    _looks: int = 0

    def put(self, nodes: Mapping[str, Node]) -> None:
        """What the latest look has seen."""
        with self._changed:
            self._nodes, self._looks = nodes, self._looks + 1
            self._changed.notify_all()

    def wait(self, names: Collection[str], wake: Callable[[], None]) -> bool:
        """Return when all of these nodes are up (True), or when one of them will not be. `wake`: asks for a look.

        A look that began before the question may have seen what was before the job had its nodes: the next one decides.
        """
        with self._changed:
            began = self._looks
            while True:
                nodes = [self._nodes.get(name) for name in names]
                if all(node is not None and node.is_up for node in nodes):
                    return True
                if self._looks == began:  # of nodes that are up nothing is to be learned, and a look takes a core
                    wake()
                failed = any(node is None or node.is_down or (node.is_off and not node.is_awaited) for node in nodes)
                if (self._looks > began + 1 and failed) or not self._changed.wait(SILENT_SECONDS):
                    return False


def is_short(hosts: str) -> bool:
    """Whether a host list has no more nodes than there can be: who asks for a billion wants to see the memory full."""
    inside = ",".join(re.findall(r"\[([^\]]*)", hosts))
    spans = (abs(int(last) - int(first)) for first, last in re.findall(r"(\d+)-(\d+)", inside))
    return not _NO_POOL_S.search(inside) and sum(spans) < _MOST_NODES


class Server(http_server.Server):
    """Where slurmctld's programs ask. One thread for each job that waits for its nodes.

    Nobody needs to prove who he is: a look changes nothing that the next one would not, and whether nodes are up
    everybody sees in sinfo.
    """

    request_queue_size = 1024


def start_server(ready: Ready, wake: Callable[[], None], port: int = PORT) -> http_server.Server:
    """Answer in the background. The caller may `shutdown()` it."""
    slots = threading.BoundedSemaphore(MOST_WAITING)

    class Handler(http_server.Handler):
        def do_GET(self) -> None:  # noqa: N802
            """`/ready?nodes=LIST`: answered when these nodes are up, or one of them will not be."""
            url = urlsplit(self.path)
            hosts = parse_qs(url.query).get("nodes", [""])[0]
            if url.path == "/healthz":
                self._answer(HTTPStatus.OK, "fine\n")
            elif url.path != "/ready" or not hosts or not is_short(hosts):
                self._answer(HTTPStatus.NOT_FOUND, "")
            elif not slots.acquire(blocking=False):
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many wait\n")
            else:
                try:
                    there = ready.wait(frozenset(expand(hosts)), wake)
                finally:
                    slots.release()
                self._answer(HTTPStatus.OK if there else HTTPStatus.GONE, "ready\n" if there else "not there\n")

        def do_POST(self) -> None:  # noqa: N802
            """`/look`: something has changed."""
            wake()
            self._answer(HTTPStatus.OK, "")

        def _answer(self, status: HTTPStatus, text: str) -> None:
            self.send(http_server.Answer("text/plain", text, status))

    return http_server.serve(Server(("", port), Handler))


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
    elastic: bool = True
    """Whether there are elastic pools."""
    now: Callable[[], float] = time.time
    """Seconds since 1970."""
    steady: Callable[[], float] = time.monotonic
    """Seconds on a clock that nobody sets."""
    ready: Ready = field(default_factory=Ready)
    _refused: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    """What is not tried again yet: until when, after which pause, and why."""
    _owes: bool = True
    """Whether nodes may be drained for their new pods, of which only Slurm knows."""

    def __post_init__(self) -> None:
        self._starts = Starts(self.now())

    def keep_looking(self, wake: threading.Event) -> NoReturn:
        """Look for ever."""
        clock = Clock()
        reminder = Reminder(self.log, clock)
        while True:
            wake.clear()
            try:
                rest, pause = self.look()
                reminder = Reminder(self.log, clock)
            except SlurmError as error:
                reminder.waiting(f"slurmctld: {error}")
                rest = pause = ROLLING_SECONDS
            time.sleep(rest)
            wake.wait(pause - rest)

    def look(self) -> tuple[float, float]:
        """One look; seconds until the next one at the earliest, and where nobody asks. Raises SlurmError."""
        if not (self.elastic or self._owes or _rolls(self.sets(), self.there())):
            return QUICK_SECONDS, ROLLED_SECONDS
        began = self.steady()
        nodes = self.nodes.read()
        self.ready.put(nodes)
        rest = min(max(QUICK_SECONDS, SHARE * (self.steady() - began)), USUAL_SECONDS)
        if not self.synced():
            return rest, max(rest, ROLLING_SECONDS)
        # Only now: before Kubernetes has told all, it would look as if there were no pools.
        pods, now = self.there(), self.now()
        ours = [pool for pool in self.pools().values() if pool is not None]
        pools = {pool.name: pool for pool in ours if pool.is_understood}
        unread = {pool.name for pool in ours if not pool.is_understood}
        nodes, pods = _without(unread, nodes), _without(unread, pods)
        sets = self.sets()
        rolling = _rolls(sets, pods)
        old = any(pod.pool in pools and pod.digest not in {"", pools[pod.pool].digest} for pod in pods.values())
        ends = self.nodes.ends() if rolling or old else {}
        self._starts.see(nodes, now)
        view = View(pools=pools, nodes=nodes, pods=pods, now=now, ends=ends, off=self._starts.off)
        plan = self._elastic_plan(view) if self.elastic else Plan()
        for fixed in sets.values():
            if fixed is not None:
                roll(plan, view, fixed)
        self._owes = rolling or any(drained_for_it(node) for node in nodes.values())
        usual = ROLLING_SECONDS if self._owes else USUAL_SECONDS if self.elastic else ROLLED_SECONDS
        moves = self.elastic and any(node.is_moving for node in nodes.values())
        return rest, rest if self._do(plan, pools) or moves else max(rest, usual)

    def _elastic_plan(self, view: View) -> Plan:
        for name, pool in view.pools.items():
            refused = self._refused.get(f"start {name}", (0.0, 0.0, ""))[2][:LONGEST_TROUBLE]
            view.closed[name] = self._starts.judge(name, view.nodes_of(pool), view.pods, view.now, refused=refused)
        return decide(view)

    def _do(self, plan: Plan, pools: Mapping[str, Pool]) -> bool:
        """What changes nodes first, by what has just been seen; then pods, for which Kubernetes may take long.

        Whether anything was done.
        """
        right, done, gone = self._checked(plan.update), list[bool](), set[str]()
        for is_later in (False, True):  # what was asked a moment ago does not wait for what takes long
            gone = self._delete_records(plan, pools) if is_later else gone
            for (state, reason), names in sorted(right.items(), key=lambda item: item[0][0] != "drain"):
                left = [name for name in names if name not in gone]
                if left and (state not in {"drain", "down"}) == is_later:
                    done.append(self._try(f"{state} {reason}", partial(self.nodes.update, left, state, reason)))
        makes = {"create": self.nodes.create, "place": self.nodes.place, "start": self.pods.start}
        for what, wanted in (("create", plan.create), ("place", plan.place), ("start", plan.start)):
            for pool, names in wanted.items():
                done.append(self._try(f"{what} {pool}", partial(makes[what], pools[pool], names)))
        if plan.end:
            done.append(self._try("end", partial(self.pods.end, [*plan.end.values()])))
        return any(done) or bool(gone)

    def _checked(self, changes: Mapping[tuple[str, str], list[str]]) -> dict[tuple[str, str], list[str]]:
        """Changes; of those that would end jobs, for the nodes for which they are right at this very moment."""
        states = {state for state, _ in changes}
        now = self.nodes.read() if "drain" in states else {}
        there = self._pods_there() if "down" in states else None

        def is_right(state: str, reason: str, name: str) -> bool:
            if state == "down":
                return there is not None and name not in there
            if state != "drain":
                return True
            if name in now and reason == ROLLS:  # who has drained one meanwhile had a reason
                return not (now[name].is_drained or now[name].is_down)
            # Slurm gives back or ends the jobs of one that has got some, and is not up yet (node_mgr.c).
            return name in now and now[name].has_nothing

        return {change: [name for name in names if is_right(*change, name)] for change, names in changes.items()}

    def _pods_there(self) -> Collection[str] | None:
        """Pods that the API server has at this very moment; None: it does not answer."""
        try:
            there = self.pods.there()
        except KubeError as error:
            self._try("ask for pods", partial(str, f"cannot ask whether pods are gone: {error}"))
            return None
        self._refused.pop("ask for pods", None)
        return there

    def _delete_records(self, plan: Plan, pools: Mapping[str, Pool]) -> set[str]:
        """Delete records, and make those anew that are of older resources; which are gone.

        Before a drain is lifted: the record that comes may have other CPUs, memory and GPUs. In two halves: a pool
        without any record would have sbatch refuse what needs it.
        """
        wanted = self.nodes.wanted() if plan.delete or plan.renew else frozenset()
        halves = [(pool, part) for pool, of in plan.renew.items() for part in (of[::2], of[1::2])]
        gone = set[str]()
        for pool, names in [("", plan.delete), *halves]:
            left = [name for name in names if name not in wanted]
            if left and self._try(f"delete {pool}", partial(self.nodes.delete, left)):
                gone.update(left)
                if pool:
                    self._try(f"create {pool}", partial(self.nodes.create, pools[pool], left))
        return gone

    def _try(self, what: str, do: Callable[[], str]) -> bool:
        """Do what tells why it is refused; where it is, again after one second, two, four, at last thirty."""
        until, pause, logged = self._refused.get(what, (0.0, 0.5, ""))
        if self.steady() < until:
            return False
        refusal = do()
        if not refusal:
            self._refused.pop(what, None)
            return True
        pause = min(2 * pause, LONGEST_REFUSAL_SECONDS)
        self._refused[what] = (self.steady() + pause, pause, refusal)
        if refusal != logged:
            self.log(refusal)
        return False


def _rolls(sets: Mapping[str, FixedPool | None], pods: Mapping[str, Pod]) -> bool:
    """Whether a node of a fixed pool is to get a new pod."""
    return any(pool.is_outdated(pods.get(name)) for pool in sets.values() if pool for name in pool.nodes())


def _without(pools: Collection[str], of: Mapping[str, Value]) -> dict[str, Value]:
    """What is of no node of these pools, by the names of nodes."""
    return {name: one for name, one in of.items() if name.rpartition("-")[0] not in pools}


def main() -> int:
    """Entry point."""
    with program("elastic") as log:
        end_with_threads(log)
        kube = Kube.in_cluster(own_namespace(), os.environ)
        if kube is None:
            raise RefusedError("there is no Kubernetes around this program")
        wake = threading.Event()

        def follow(path: str, extract: Callable[[Object], Value]) -> Follower[Value]:
            return Follower(kube, path, extract, log, selector=WORKER_PODS, changed=lambda _: wake.set())

        elastic = os.environ.get("POOLS") != "none"
        pods = follow(kube.path("pods"), pod_of)
        sets = follow(f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets", fixed_pool_of)
        pools = follow(kube.path("podtemplates"), pools_read(log))
        followed: list[Follower[Any]] = [pods, sets, *([pools] if elastic else [])]
        rounds = Rounds(
            nodes=Nodes(log), pods=Pods(kube, log), pools=pools.values, sets=sets.values, there=pods.values,
            synced=lambda: all(one.synced for one in followed), log=log, elastic=elastic,
        )  # fmt: skip
        for one in followed:
            one.start()
        start_server(rounds.ready, wake.set)
        rounds.keep_looking(wake)
