"""Nodes that were not there in time: what waits for it, for how long, and what is forgotten when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from images.elastic.nodes import Node, Pod, Pool
from images.elastic.starts import Closed, Starts

NOON = 1_800_000_000.0  # 2027-01-15 08:00 UTC
POOL = Pool(name="gpu", least=0, most=4, conf="CPUs=2", mark="now", digest="new")
UP, BUSY, COMING = "IDLE+CLOUD", "MIXED+CLOUD", "MIXED+CLOUD+POWERING_UP"
OFF, LATE = "IDLE+CLOUD+POWERED_DOWN", "DOWN+CLOUD+POWERED_DOWN"
TOO_LATE = "ResumeTimeout reached"


def nodes(*states: str | tuple[str, str]) -> dict[str, Node]:
    """`gpu-0`, ... of these states, some with their reasons; who is late has Slurm's."""
    found = {}
    for number, given in enumerate(states):
        state, reason = (given, TOO_LATE if given == LATE else "") if isinstance(given, str) else given
        found[f"gpu-{number}"] = Node(name=f"gpu-{number}", states=frozenset(state.split("+")), reason=reason)
    return found


def looks(
    starts: Starts, *seen: tuple[float, Mapping[str, Node]], pods: Iterable[Pod] = (), pool: Pool = POOL
) -> Closed:
    """What the last of some looks finds, each so many seconds after noon."""
    for at, there in seen:
        starts.see(there, NOON + at)
        named = {pod.name: pod for pod in pods}
        found = starts.judge(pool, [*there.values()], pods=named, now=NOON + at, refused={})
    return found


def drained(there: Mapping[str, Node], closed: Closed) -> dict[str, Node]:
    """As Slurm has them afterwards."""
    states = {name: "+".join({*node.states, "DRAIN"}) for name, node in there.items()}
    reasons = {name: closed.nodes.get(name, closed.pool) for name in there}
    return nodes(*[(states[name], reasons[name]) if reasons[name] else "+".join(there[name].states) for name in there])


def test_where_no_node_has_come_the_pool_waits_longer_and_longer_and_a_restart_ends_no_pause() -> None:
    starts, there = Starts(), nodes(LATE, OFF)
    first = looks(starts, (0, nodes(COMING, OFF)), (60, there))
    assert (
        first.pool == "slurmstack/elastic: no capacity, 1 in vain, again at 2027-01-15T08:01:30Z: gpu-0: it has no pod"
    )
    assert first.nodes == {"gpu-0": first.pool}
    waits = drained(there, first)
    for again in (starts, Starts()):
        assert looks(again, (89, waits)).pool == first.pool
        assert looks(again, (90, waits)) == Closed()
    assert "2 in vain, again at 2027-01-15T08:03:40Z" in looks(starts, (160, there)).pool


def test_another_template_is_tried_at_once_and_has_no_failures_yet() -> None:
    starts, there, mended = Starts(), nodes(LATE, OFF), replace(POOL, digest="mended")
    waits = drained(there, looks(starts, (0, nodes(COMING, OFF)), (60, there)))
    assert looks(starts, (61, waits), pool=mended) == Closed()
    again = looks(starts, (62, nodes(COMING, OFF)), (122, there), pool=mended)
    assert "1 in vain" in again.pool
    assert looks(starts, (123, drained(there, again)), pool=mended).pool == again.pool


def test_a_late_node_of_a_pool_whose_others_come_waits_alone() -> None:
    """A busy pool with constant good starts and one late node now and then was stopped after the tenth."""
    starts = Starts()
    for number in range(20):
        at = 1200 * number
        found = looks(
            starts,
            (at, nodes(COMING, COMING, OFF)),
            (at + 30, nodes(COMING, BUSY, OFF)),
            (at + 60, nodes(LATE, BUSY, OFF)),
        )
        assert (found.pool, [*found.nodes]) == ("", ["gpu-0"])
        assert found.nodes["gpu-0"].startswith(f"slurmstack/elastic: did not come, {number + 1} in vain, again at ")
    looks(starts, (10**6, nodes(COMING, BUSY, OFF)), (10**6 + 5, nodes(BUSY, BUSY, OFF)))
    both = (2 * 10**6, nodes(COMING, COMING, OFF)), (2 * 10**6 + 30, nodes(COMING, BUSY, OFF))
    assert ", 1 in vain" in looks(starts, *both, (2 * 10**6 + 60, nodes(LATE, BUSY, OFF))).nodes["gpu-0"], "it has come"


def test_a_late_node_waits_for_its_time_though_others_come() -> None:
    """N - 1 machines for a job of N nodes were started and given back all the time."""
    starts = Starts()
    found = looks(starts, (0, nodes(COMING, COMING)), (30, nodes(BUSY, COMING)), (60, nodes(UP, LATE)))
    waits = drained(nodes(UP, LATE), found)
    waits["gpu-0"] = nodes(COMING)["gpu-0"]
    up = {**waits, **nodes(UP)}
    assert looks(starts, (70, waits), (80, up)).nodes.keys() == {"gpu-1"}
    assert looks(starts, (90, up)) == Closed()
    again = looks(starts, (100, nodes(COMING, COMING)), (130, nodes(BUSY, COMING)), (160, nodes(UP, LATE)))
    assert "did not come, 2 in vain" in again.nodes["gpu-1"]


def test_failures_are_forgotten_when_all_that_was_wanted_has_come() -> None:
    starts = Starts()

    def tries(at: float) -> str:
        return looks(starts, (at, nodes(COMING, OFF)), (at + 60, nodes(LATE, OFF))).pool

    assert "2 in vain" in [tries(-400), tries(-200)][1]
    looks(starts, (100, nodes(COMING, COMING)), (110, nodes(BUSY, COMING)), (160, nodes(UP, LATE)))
    assert "3 in vain" in tries(300), "one of two is no capacity for the job"
    looks(starts, (500, nodes(COMING, COMING)), (510, nodes(BUSY, COMING)), (520, nodes(BUSY, BUSY)))
    assert "1 in vain" in tries(600)


def test_a_node_that_comes_ends_all_pauses_and_lets_failures_be_forgotten() -> None:
    starts, there = Starts(), nodes(LATE, COMING, OFF)
    first = looks(starts, (0, nodes(COMING, COMING, OFF)), (60, there))
    assert first.pool
    waits = drained(there, first)
    waits["gpu-1"] = nodes(COMING, COMING)["gpu-1"]
    assert looks(starts, (65, waits)).pool
    assert looks(starts, (70, {**waits, "gpu-1": nodes(UP, UP)["gpu-1"]})) == Closed()
    later = looks(starts, (200, nodes(COMING, BUSY, OFF)), (260, nodes(LATE, BUSY, OFF)))
    assert "1 in vain" in later.pool


def test_no_pause_is_longer_than_ten_minutes_or_an_hour_where_machines_come() -> None:
    for pods, until in (([], "08:11:00"), ([Pod(name="gpu-0", pool="gpu")], "09:01:00")):
        starts, there = Starts(), nodes(LATE, OFF)
        for tries in range(1, 2000):
            now = 60 - 4000 * (2000 - tries - 1)
            found = looks(starts, (now - 60, nodes(COMING, OFF)), (now, there), pods=pods)
        assert f", {tries} in vain, again at 2027-01-15T{until}Z: gpu-0: it" in found.pool
        assert looks(starts, (61, nodes(OFF, OFF))) == Closed(), "somebody has resumed them"


def test_nodes_that_were_started_before_a_pause_and_fail_in_it_are_no_further_try() -> None:
    starts = Starts()
    there = nodes(LATE, COMING)
    first = looks(starts, (0, nodes(COMING, COMING)), (60, there))
    both = {**drained(there, first), "gpu-1": nodes(OFF, LATE)["gpu-1"]}
    assert looks(starts, (65, both)).nodes == dict.fromkeys(both, first.pool)


def test_the_true_reason_is_told() -> None:
    def why(**pod: object) -> str:
        seen = Pod(**{"name": "gpu-0", "pool": "gpu", **pod})  # type: ignore[arg-type]
        found = looks(Starts(), (0, nodes(COMING)), (60, nodes(LATE)), pods=[seen])
        kind, _, said = found.nodes["gpu-0"].removeprefix("slurmstack/elastic: ").partition("Z: ")
        return f"{kind.partition(',')[0]}; {said}"

    assert why(is_unscheduled=True, trouble="no GPU") == "no capacity; gpu-0: no GPU"
    assert why(trouble="ImagePullBackOff") == "no node comes; gpu-0: ImagePullBackOff"
    assert why() == "no node comes; gpu-0: its slurmd has not registered"
    assert why(is_leaving=True, trouble="it stays") == "did not come; gpu-0: it stays", "the pool has no part in it"


def test_nodes_that_came_for_a_job_whose_others_did_not_are_given_back_as_long_as_those_wait() -> None:
    """But none that was there before. Those of a job that has had all of its nodes are nobody's surplus."""
    starts = Starts()
    came, there = nodes(COMING, BUSY, UP), nodes(LATE, UP, UP)
    found = looks(starts, (0, nodes(OFF, OFF, COMING)), (5, nodes(COMING, COMING, UP)), (30, came), (60, there))
    assert found.surplus == {"gpu-1"}
    waits = {**there, "gpu-0": drained(there, found)["gpu-0"]}
    assert looks(starts, (70, waits)).surplus == {"gpu-1"}
    others = nodes(OFF, UP, UP, COMING), nodes(OFF, UP, UP, UP)
    later = [{**seen, "gpu-0": waits["gpu-0"]} for seen in others]
    assert looks(starts, (75, later[0]), (80, later[1])).surplus == {"gpu-1"}, "it came for another job"
    assert looks(starts, (95, nodes(OFF, UP, UP))).surplus == set()


def test_a_node_that_is_drained_with_its_pool_and_did_not_fail_makes_nobody_s_nodes_surplus() -> None:
    """It was started last week: all that came since then were given back in each pause."""
    starts = Starts()
    looks(starts, (0, nodes(COMING, OFF, OFF)), (5, nodes(UP, COMING, OFF)), (10, nodes(OFF, UP, OFF)))
    found = looks(starts, (900, nodes(OFF, UP, COMING)), (960, nodes(OFF, UP, LATE)))
    assert found.pool
    waits = drained(nodes(OFF, UP, LATE), found)
    waits["gpu-1"] = nodes(OFF, UP)["gpu-1"]
    assert looks(starts, (965, waits)).surplus == set()


def test_what_somebody_has_drained_is_drained_again_when_slurm_has_lifted_that() -> None:
    """While it was coming, or while it waited to go down. What Slurm or we had to say before is nobody's drain."""
    coming, late = nodes((f"{COMING}+DRAIN", "bad fan"), OFF), nodes((LATE, f"bad fan : {TOO_LATE}"), OFF)
    found = looks(Starts(), (0, nodes(COMING, OFF)), (5, coming), (60, late))
    assert (found.nodes, found.pool) == ({"gpu-0": "bad fan"}, "")
    resumed = looks(Starts(), (5, coming), (9, nodes(COMING, OFF)), (60, late))
    assert resumed.nodes == {"gpu-0": resumed.pool}
    ours = looks(Starts(), (0, nodes((LATE, f"slurmstack/elastic: gets a new pod : {TOO_LATE}"))))
    assert ours.nodes == {"gpu-0": ours.pool}

    going, own = f"{BUSY}+DRAIN+POWER_DOWN", "slurmstack/elastic: gets a new pod"
    down = ((0, nodes((going, own))), (5, nodes((going, "health/gpu: lost"))), (9, nodes(f"{UP}+POWERING_DOWN")))
    assert looks(Starts(), *down, (20, nodes(OFF))).nodes == {"gpu-0": "health/gpu: lost"}
    let_go = ((0, nodes((f"{UP}+DRAIN", "a fan"))), (5, nodes((f"{UP}+DRAIN+POWER_DOWN", "a fan"))), (20, nodes(OFF)))
    assert not looks(Starts(), *let_go).nodes, "who has drained it has powered it down himself"
