"""The changes that the end-to-end test tries are really of every kind."""

from __future__ import annotations

from config import load_config
from config.cluster import ClusterConfig
from tests import stacks
from tests.changes import ELSEWHERE, ENTRIES, all_changes, series


def with_entries() -> dict[str, object]:
    """The development stack with one of everything that has a name."""
    sections = stacks.dev()
    for section, entries in ENTRIES.items():
        sections[section] = {**sections.get(section, {}), **entries}
    sections["users"] = {name: {**user, "accounts": ["physics"]} for name, user in sections["users"].items()}
    return sections


def test_every_section_is_added_to_and_changed_and_taken_away_or_it_is_said_why_not() -> None:
    load_config(with_entries())
    found = [*all_changes(stacks.dev()), *all_changes(with_entries())]
    whole = {name for name in ClusterConfig.model_fields if name not in ELSEWHERE}
    assert {change.section for change in found if change.kind != "remove"} == whole - {"cluster"}
    assert {change.section for change in found if change.kind == "remove"} >= set(ENTRIES)


def test_the_same_seed_gives_the_same_valid_series() -> None:
    first, again = (list(series(stacks.dev(), seed=3, count=20)) for _ in range(2))
    assert [str(change) for change, _ in first] == [str(change) for change, _ in again]
    assert len({change.section for change, _ in first}) > 5
    for _, sections in first:
        load_config(sections)


def test_another_seed_gives_another_series() -> None:
    one, other = ([str(change) for change, _ in series(stacks.dev(), seed=seed, count=5)] for seed in (1, 2))
    assert one != other
