"""One look after the other at elastic pools, and at fixed ones whose pods are replaced; and what is done then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from images.common.kubernetes import KubeError
from images.common.slurm_node import ROLLS, STAYS_LEAVING
from images.common.wait import Clock, Reminder
from images.elastic.decide import Plan, View, decide
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.pods import Pods
from images.elastic.rolls import FixedPool, drained_for_it, roll
from images.elastic.server import Ready
from images.elastic.starts import Closed, Starts
from images.elastic.view import LONGEST_TROUBLE, Node, Pod, Pool

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
LONGEST_SILENT_SECONDS: Final = 30.0
"""For which jobs wait for an answer while slurmctld gives none."""
MADE_SECONDS: Final = 5.0
"""How long Kubernetes may take to tell of a pod that was made: until then it is not made once more."""
STUCK_SECONDS: Final = 60.0
"""How long a pod may take to go that no job runs in. Most are gone after a few seconds."""


def keep_looking(
    look: Callable[[], tuple[float, float]],
    wake: threading.Event,
    log: Callable[[str], None],
    heard_nothing: Callable[[], None],
) -> NoReturn:
    """Look for ever. `heard_nothing`: done while slurmctld is silent for long."""
    clock = Clock()
    reminder, heard = Reminder(log, clock), clock.now()
    while True:
        wake.clear()
        try:
            rest, pause = look()
            reminder, heard = Reminder(log, clock), clock.now()
        except SlurmError as error:
            reminder.waiting(f"slurmctld: {error}")
            rest = pause = ROLLING_SECONDS
            if clock.now() - heard > LONGEST_SILENT_SECONDS:
                heard_nothing()
        time.sleep(rest)
        wake.wait(pause - rest)


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
    _leaving_since: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    """What is not tried again yet: until when, after which pause, and why."""
    _owes: bool = True
    """Whether nodes may be drained for their new pods, of which only Slurm knows."""
    _told: dict[str, str] = field(default_factory=dict)
    _made: dict[str, float] = field(default_factory=dict)
    """When pods were made of which Kubernetes may not have told yet."""

    def __post_init__(self) -> None:
        self._starts = Starts(self.now())

    def look(self) -> tuple[float, float]:
        """One look; seconds until the next one at the earliest, and where nobody asks. Raises SlurmError."""
        if not (self.elastic or self._owes or self._rolling()):
            self._tell({})
            return QUICK_SECONDS, ROLLED_SECONDS
        began = self.steady()
        nodes = self.nodes.read()
        self.ready.put(nodes)
        rest = min(max(QUICK_SECONDS, SHARE * (self.steady() - began)), USUAL_SECONDS)
        if not self.synced():
            return rest, max(rest, ROLLING_SECONDS)
        # Only now: before Kubernetes has told all, it would look as if there were no pools.
        pools = {name: pool.at(self.now()) for name, pool in self.pools().items() if pool is not None}
        for name in (name for name, pool in pools.items() if pool.zone is None):
            why = f"pool {name}: its windows are not obeyed, for this image lacks their time zone"
            self._try(f"windows {name}", partial(str, why))
        rolling, pods = self._rolling(), self.there()
        ends = self.nodes.ends() if rolling or _ends_matter(pools, nodes, pods) else {}
        plan = self._elastic_plan(pools, nodes, pods, ends) if self.elastic else Plan()
        sets = [pool for pool in self.sets().values() if pool is not None]
        told = {pool.name: roll(plan, pool, nodes, pods, ends) for pool in sets}
        self._tell({pool.name: told[pool.name] for pool in rolling})
        did = self._do(plan, pools)
        self._owes = bool(rolling) or any(drained_for_it(node) for node in nodes.values())
        usual = ROLLING_SECONDS if self._owes else USUAL_SECONDS
        moves = self.elastic and any(node.is_moving for node in nodes.values())
        return rest, rest if did or moves else max(rest, usual)

    def _rolling(self) -> list[FixedPool]:
        """Pools of which some nodes are to get new pods."""
        pods, pools = self.there(), (pool for pool in self.sets().values() if pool is not None)
        return [pool for pool in pools if any(pool.is_outdated(pods.get(name)) for name in pool.nodes())]

    def _elastic_plan(
        self, pools: Mapping[str, Pool], nodes: Mapping[str, Node], pods: Mapping[str, Pod], ends: Mapping[str, float]
    ) -> Plan:
        now, view = self.now(), partial(View, pools=pools, nodes=nodes, pods=pods, ends=ends)
        self._starts.see(nodes, now)
        closed, seen = dict[str, Closed](), view(closed={}, now=now)
        for name, pool in pools.items():
            refused = self._refused.get(f"start {name}", (0.0, 0.0, ""))[2][:LONGEST_TROUBLE]
            closed[name] = self._starts.judge(name, seen.nodes_of(pool), pods, now, refused=refused)
        return decide(view(closed=closed, now=now, stuck=self._stuck(nodes, pods)))

    def _stuck(self, nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> Collection[str]:
        """Nodes whose pods should have gone: the machine is dead, or its kubelet, and nobody has told Kubernetes."""
        now = self.steady()
        leaving = (nodes[pod.name] for pod in pods.values() if pod.is_leaving and pod.name in nodes)
        self._leaving_since = {
            node.name: now - STUCK_SECONDS if node.reason == STAYS_LEAVING else self._leaving_since.get(node.name, now)
            for node in leaving
            if not node.is_up
        }
        return {name for name, since in self._leaving_since.items() if now - since >= STUCK_SECONDS}

    def _tell(self, texts: dict[str, str]) -> None:
        """How far the replacing of pods is."""
        for name in texts.keys() | self._told.keys():
            text = texts.get(name, "no node has an old pod any more")
            if self._told.get(name) != text:
                self.log(f"pool {name}: {text}")
        self._told = texts

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
        done.append(bool(gone))
        now = self.steady()
        self._made = {name: at for name, at in self._made.items() if now - at < MADE_SECONDS}
        makes = (("create", self.nodes.create, plan.create), ("place", self.nodes.place, plan.place))
        for what, make, wanted in (*makes, ("start", self.pods.start, plan.start)):
            for pool, names in wanted.items():
                if left := [name for name in names if what != "start" or name not in self._made]:
                    done.append(self._try(f"{what} {pool}", partial(make, pools[pool], left)))
                    self._made |= dict.fromkeys(left if what == "start" and done[-1] else (), now)
        if plan.end:
            done.append(self._try("end", partial(self.pods.end, [*plan.end.values()])))
        return any(done)

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
        batches = [
            ("", plan.delete),
            *((pool, part) for pool, of in plan.renew.items() for part in (of[::2], of[1::2])),
        ]
        gone = set[str]()
        for pool, names in batches:
            left = [name for name in names if name not in wanted]
            if left and self._try(f"delete {pool}", partial(self.nodes.delete, left)):
                gone.update(left)
                if pool:
                    self._try(f"create {pool}", partial(self.nodes.create, pools[pool], left))
        return gone

    def _try(self, what: str, do: Callable[[], str]) -> bool:
        """Do what tells why it is refused; where it is, again after one second, two, four, at last thirty."""
        until, pause, said = self._refused.get(what, (0.0, 0.5, ""))
        if self.steady() < until:
            return False
        refusal = do()
        if not refusal:
            self._refused.pop(what, None)
            return True
        pause = min(2 * pause, LONGEST_REFUSAL_SECONDS)
        self._refused[what] = (self.steady() + pause, pause, refusal)
        if refusal != said:
            self.log(refusal)
        return False


def _ends_matter(pools: Mapping[str, Pool], nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> bool:
    """Whether some nodes have old pods, or must leave and have jobs, so that it matters when those end."""
    usual = {name for pool in pools.values() for name in pool.nodes()}
    beyond = any(node.is_cloud and not (node.is_off or node.is_idle or name in usual) for name, node in nodes.items())
    return beyond or any(pod.pool in pools and pod.digest not in {"", pools[pod.pool].digest} for pod in pods.values())
