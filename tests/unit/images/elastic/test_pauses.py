"""Nodes that were not there in time: the pool pauses, longer each time, and is set aside in the end."""

from __future__ import annotations

import dataclasses

from images.common.elastic.view import Node, Pool
from images.elastic.bounds import MOST_FAILURES, Pauses
from images.elastic.decide import Plan, View

NOON = 1_800_000_000.0
POOL = Pool(name="gpu", least=0, most=3, conf="CPUs=2", resume_timeout=60.0)
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
LATE = frozenset({"DOWN", "CLOUD", "POWERED_DOWN"})


def seen(*nodes: Node) -> View:
    return View(pools={"gpu": POOL}, nodes={node.name: node for node in nodes}, pods={})


def late(name: str) -> Node:
    return Node(name=name, states=LATE, reason="ResumeTimeout reached")


def off(name: str, reason: str = "", *more: str) -> Node:
    return Node(name=name, states=OFF | set(more), reason=reason)


def judged(pauses: Pauses, view: View, at: float, jobs: dict[str, frozenset[str]] | None = None) -> Plan:
    plan = Plan()
    pauses.decide(plan, view, jobs or {}, at)
    return plan


def test_the_pool_pauses_with_all_nodes_that_are_off_and_goes_on_when_the_time_has_come() -> None:
    pauses = Pauses()
    up = Node(name="gpu-2", states=frozenset({"MIXED", "CLOUD"}))
    reason = "slurmstack/elastic: no capacity, 1 in vain, again at 2027-01-15T08:00:30Z"
    first = judged(pauses, seen(late("gpu-0"), off("gpu-1"), up), NOON)
    assert first.update == {("drain", reason): ["gpu-0", "gpu-1"]}
    paused = seen(Node(name="gpu-0", states=LATE | {"DRAIN"}, reason=reason), off("gpu-1", reason, "DRAIN"), up)
    assert judged(pauses, paused, NOON + 29).is_empty()
    assert judged(pauses, paused, NOON + 30).update == {("resume", ""): ["gpu-0", "gpu-1"]}


def test_who_is_given_back_with_a_job_is_no_node_that_a_health_check_keeps() -> None:
    """Slurm lifts the drain of what it powers down, and its machine goes with all that there was to look at."""
    up = frozenset({"IDLE", "CLOUD"})
    view = seen(
        late("gpu-0"), Node(name="gpu-1", states=up), Node(name="gpu-2", states=up | {"DRAIN"}, reason="GPU lost")
    )
    changes = judged(Pauses(), view, NOON, {"7": frozenset({"gpu-0", "gpu-1", "gpu-2"})}).update
    assert changes["power_down", "slurmstack/elastic: others of its job did not come"] == ["gpu-1"]


def test_a_restart_forgets_neither_the_pause_nor_how_often_it_was_in_vain() -> None:
    reason = "slurmstack/elastic: no capacity, 4 in vain, again at 2027-01-15T08:04:00Z"
    pauses = Pauses()
    assert judged(pauses, seen(off("gpu-0", reason, "DRAIN")), NOON).is_empty()
    again = judged(pauses, seen(late("gpu-0")), NOON + 300)
    assert ("drain", "slurmstack/elastic: no capacity, 5 in vain, again at 2027-01-15T08:13:00Z") in again.update


def test_after_many_failures_in_a_row_it_is_set_aside_until_somebody_resumes_a_node() -> None:
    pauses = Pauses()
    plans = [judged(pauses, seen(late("gpu-0")), NOON + 700 * tries) for tries in range(MOST_FAILURES)]
    ((state, aside),) = plans[-1].update
    assert (state, aside.startswith("slurmstack/elastic: set aside after 10 starts in vain")) == ("drain", True)
    assert judged(pauses, seen(off("gpu-0", aside, "DRAIN")), NOON + 10**6).is_empty()
    judged(pauses, seen(off("gpu-0")), NOON + 10**6)
    assert pauses.failures == {}


def test_what_an_administrator_has_drained_stays_drained_with_his_reason() -> None:
    plan = judged(Pauses(), seen(late("gpu-0"), off("gpu-1", "a fan", "DRAIN")), NOON)
    assert all("gpu-1" not in names for names in plan.update.values())


def test_a_node_that_came_for_a_job_whose_others_did_not_is_ended_unless_a_job_uses_it() -> None:
    came, busy = (Node(name=f"gpu-{n}", states=frozenset({state, "CLOUD"})) for n, state in ((1, "IDLE"), (2, "MIXED")))
    jobs = {"7": frozenset({"gpu-0", "gpu-1", "gpu-2"}), "8": frozenset({"gpu-2"})}
    end = ("power_down", "slurmstack/elastic: others of its job did not come")
    assert judged(Pauses(), seen(late("gpu-0"), came, busy), NOON, jobs).update[end] == ["gpu-1"]


def paused(name: str, tries: int, until: str, *more: str) -> Node:
    return off(name, f"slurmstack/elastic: no capacity, {tries} in vain, again at {until}", "DRAIN", *more)


def test_nodes_that_were_started_before_a_pause_and_fail_in_it_are_no_further_try() -> None:
    pauses = Pauses()
    judged(pauses, seen(late("gpu-0")), NOON)
    plan = judged(pauses, seen(paused("gpu-0", 1, "2027-01-15T08:00:30Z"), late("gpu-1")), NOON + 5)
    assert plan.update == {
        ("drain", "slurmstack/elastic: no capacity, 1 in vain, again at 2027-01-15T08:00:30Z"): ["gpu-1"]
    }
    assert pauses.failures == {"gpu": 1}


def coming(name: str) -> Node:
    return Node(name=name, states=frozenset({"MIXED", "CLOUD", "POWERING_UP"}))


def test_failures_are_forgotten_when_all_that_was_wanted_has_come() -> None:
    up = Node(name="gpu-0", states=frozenset({"MIXED", "CLOUD"}))
    pauses = Pauses()
    judged(pauses, seen(late("gpu-0")), NOON)
    judged(pauses, seen(coming("gpu-0"), coming("gpu-1")), NOON + 60)
    judged(pauses, seen(up, coming("gpu-1")), NOON + 70)
    assert pauses.failures == {"gpu": 1}, "one of two is no capacity for the job"
    judged(pauses, seen(up, late("gpu-1")), NOON + 120)
    assert pauses.failures == {"gpu": 2}
    judged(pauses, seen(up, coming("gpu-1")), NOON + 200)
    judged(pauses, seen(up, dataclasses.replace(up, name="gpu-1")), NOON + 210)
    assert pauses.failures == {}


def test_a_drain_that_slurm_has_lifted_with_the_node_is_set_again() -> None:
    """A node that somebody drained while it was coming. What Slurm or we had to say before is nobody's drain."""
    drained = Node(name="gpu-0", states=LATE, reason="bad fan : ResumeTimeout reached", reason_by="slurm")
    plan = judged(Pauses(), seen(drained, off("gpu-1")), NOON)
    assert plan.update == {("drain", "bad fan"): ["gpu-0"]}
    old = dataclasses.replace(drained, reason="slurmstack/elastic: gets a new pod : ResumeTimeout reached")
    ((state, reason),) = judged(Pauses(), seen(old), NOON).update
    assert (state, "no capacity, 1 in vain" in reason) == ("drain", True)
