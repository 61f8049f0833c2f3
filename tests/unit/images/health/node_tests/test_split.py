"""Which node of a failed pair is guilty, in clusters that are simulated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.node_tests.split import Standing, is_guilty, next_pairs

Standings = dict[str, Standing]


def names(count: int) -> list[str]:
    return [f"w-{number:02}" for number in range(count)]


def run(standings: Standings, pair: tuple[str, str], at: int, well: bool) -> None:
    for name, partner in (pair, pair[::-1]):
        met = standings.get(name, Standing()).failed_with
        standings[name] = Standing(well_at=at) if well else Standing(failed_with={**met, partner: at})


def guilty(standings: Standings) -> set[str]:
    return {name for name in standings if is_guilty(name, standings)}


def investigate(standings: Standings, is_well: Callable[[str, str], bool], rounds: int = 12) -> Standings:
    """Run what is asked for, all pairs of a round at the same time, until nothing is."""
    for number in range(rounds):
        free = set(standings) - guilty(standings)  # a guilty node is drained
        pairs = next_pairs(standings, free)
        assert len({name for pair in pairs for name in pair}) == 2 * len(pairs)
        for pair in pairs:
            run(standings, pair, 1000 + 10 * number, is_well(*pair))
        if not pairs:
            break
    return standings


def without(bad: set[str]) -> Callable[[str, str], bool]:
    """Runs are well in which none of these takes part."""
    return lambda first, second: not bad & {first, second}


def cluster(count: int, failed: tuple[str, str]) -> Standings:
    """All were well yesterday, then a pair fails."""
    standings = {name: Standing(well_at=10) for name in names(count)}
    run(standings, failed, 100, well=False)
    return standings


def test_the_bad_nodes_of_a_failed_pair_are_found() -> None:
    for count in (4, 5, 8):
        for bad in ("w-00", "w-01"):
            found = investigate(cluster(count, ("w-00", "w-01")), without({bad}))
            assert guilty(found) == {bad}
            assert all(found[name].well_at for name in found if name != bad), "whoever was with it is cleared"
    found = investigate(cluster(8, ("w-00", "w-01")), without({"w-00", "w-01"}))
    assert guilty(found) == {"w-00", "w-01"}
    nobody = investigate(cluster(6, ("w-00", "w-01")), lambda a, b: {a, b} != {"w-00", "w-01"})
    assert guilty(nobody) == set()
    assert not any(standing.is_suspect for standing in nobody.values())


def test_a_network_that_is_slow_for_all_accuses_nobody() -> None:
    standings = {name: Standing(well_at=10) for name in names(8)}
    for at, pair in enumerate(combinations(standings, 2), start=100):
        run(standings, pair, at, well=False)
        assert guilty(standings) == set()
    assert next_pairs(standings, standings) == []


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_good_node_is_never_accused(data: st.DataObject) -> None:
    """Whatever pairs ran, in whatever order: as long as two good nodes are well together and a bad one never is."""
    everybody = names(data.draw(st.integers(2, 9)))
    bad = data.draw(st.sets(st.sampled_from(everybody)))
    standings: Standings = {}
    runs = data.draw(st.lists(st.tuples(st.sampled_from(everybody), st.sampled_from(everybody)), max_size=40))
    for at, pair in enumerate(runs):
        if pair[0] != pair[1]:
            run(standings, pair, at, well=not bad & set(pair))
            assert guilty(standings) <= bad
    good = set(everybody) - bad
    known = {name: standings.get(name, Standing()) for name in everybody}
    found = investigate(known, without(bad), rounds=40)
    assert guilty(found) <= bad
    asked = next_pairs(found, set(found) - guilty(found))
    assert asked == [], "the search ends"
    if any(found[name].well_at is not None for name in good):
        assert not any(found[name].is_suspect for name in good if len(found[name].failed_with) < 2)
