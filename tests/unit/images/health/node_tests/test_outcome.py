"""What a run that has ended means for its nodes."""

from __future__ import annotations

from dataclasses import replace

from images.health.contract import Result, Status
from images.health.node_tests.outcome import after, news, verdicts
from images.health.node_tests.plan import NodeView
from tests.unit.images.health.node_tests.views import CPU, NOW, PAIR, node, record

SLOW = Result(status=Status.FAIL, message="events 9 events/s", fault="hardware")
WELL = Result(status=Status.OK, message="events 5100 events/s")

Views = dict[str, NodeView]


def views(*nodes: NodeView) -> Views:
    return {view.name: view for view in nodes}


def run(known: Views, pair: tuple[str, str], at: int, result: Result) -> Views:
    new = after(PAIR, pair, at, result, known)
    known = {
        name: replace(view, records={PAIR.name: new[name]}) if name in new else view for name, view in known.items()
    }
    judged = verdicts(PAIR, known)
    return {
        name: replace(view, records={PAIR.name: judged[name]}) if name in judged else view
        for name, view in known.items()
    }


def statuses(known: Views) -> dict[str, Status]:
    return {name: view.records[PAIR.name].result.status for name, view in known.items() if PAIR.name in view.records}


def test_a_node_fails_when_it_is_slow_twice_in_a_row() -> None:
    once = after(CPU, ("a",), NOW, SLOW, views(node("a")))["a"]
    assert (once.result.status, once.result.fault) == (Status.WARN, "hardware")
    assert once.result.message == "events 9 events/s, measured once"
    twice = after(CPU, ("a",), NOW + 60, SLOW, views(node("a", records={"cpu-speed": once})))["a"]
    assert twice.result == SLOW
    assert after(CPU, ("a",), NOW + 90, SLOW, views(node("a", records={"cpu-speed": twice})))["a"].result == SLOW


def test_a_run_on_another_machine_of_this_name_is_no_news() -> None:
    known = views(node("a", started_at=NOW + 1))
    assert (news(CPU, ("a",), NOW, known), after(CPU, ("a",), NOW, SLOW, known)) == ([], {})


def test_the_guilty_one_fails_and_the_reason_has_the_figures_and_the_witnesses() -> None:
    known = views(*(node(name, records={PAIR.name: record(ago=9000)}) for name in "abcd"))
    known = run(known, ("a", "b"), NOW, SLOW)
    known = run(known, ("a", "c"), NOW + 10, SLOW)
    known = run(known, ("b", "d"), NOW + 10, WELL)
    assert Status.FAIL not in statuses(known).values()
    known = run(known, ("c", "d"), NOW + 20, WELL)
    assert statuses(known) == {"a": Status.FAIL, "b": Status.OK, "c": Status.OK, "d": Status.OK}
    result = known["a"].records[PAIR.name].result
    assert result.message == "with c: events 9 events/s; it failed with b and c, which are well with others"
    assert result.fault == "hardware"


def test_a_witness_that_is_another_machine_now_does_not_count() -> None:
    suspect = record(Status.WARN, ago=9, failed_with={"b": NOW - 9, "c": NOW - 9})
    known = views(
        node("a", records={PAIR.name: suspect}),
        node("b", records={PAIR.name: record(ago=1)}),
        node("c", records={PAIR.name: record(ago=1)}, started_at=NOW - 5),
    )
    assert verdicts(PAIR, known) == {}
    assert set(verdicts(PAIR, {**known, "c": replace(known["c"], started_at=0)})) == {"a"}
