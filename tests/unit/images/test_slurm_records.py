"""Slurm's records, as its commands print them."""

from __future__ import annotations

import re

import pytest

from images.common.slurm_node import waits_for_topology
from images.common.slurm_records import (
    Columns,
    NodeRecord,
    NotUnderstoodError,
    entries_in,
    fields_of,
    node_of,
    nodes_in,
    number_of,
    words_of,
)


def test_states_and_reasons_are_read_from_slurms_own_lines() -> None:
    text = (
        "NodeName=a-0 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 State=IDLE+DRAIN+DYNAMIC_NORM ThreadsPerCore=1 "
        "CurrentWatts=0 AveWatts=0 Reason=slurmstack:waiting-for-topology [slurm@2026-11-21T14:42:58] \n"
        "NodeName=a-1 Arch=x86_64 State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 \n"
        "NodeName=a-2 Arch=x86_64 State=DOWN+DYNAMIC_NORM Reason=slurmstack:waiting-for-topology [slurm@2026] \n"
    )
    assert [(node.name, waits_for_topology(node)) for node in nodes_in(text)] == [
        ("a-0", True),
        ("a-1", False),
        ("a-2", False),
    ]
    assert nodes_in("No nodes in the system\n") == []


def test_a_comment_may_look_like_anything() -> None:
    line = "ReservationName=x Nodes=a-[0-1] Users=(null) Comment=to be Nodes=z (null) Comment=kept"
    assert fields_of(line, last="Comment") == {
        "ReservationName": "x",
        "Nodes": "a-[0-1]",
        "Users": "",
        "Comment": "to be Nodes=z (null) Comment=kept",
    }
    assert fields_of("No reservations in the system", last="Comment") == {"Comment": ""}


def test_states_may_be_a_list_or_one_text_and_a_node_without_any_is_not_known() -> None:
    (entry,) = entries_in('{"nodes": [{"name": "w-0"}]}', "nodes")
    for state in (["idle", "DRAIN"], "IDLE+DRAIN"):
        record = node_of({**entry, "state": state, "reason": "bad memory"}, NodeRecord)
        want = NodeRecord(name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason="bad memory", address="w-0")
        assert record == want
        assert record.is_drained
    for other in (entry, {"name": "w-0", "state": []}, {"name": 7, "state": "IDLE"}):
        assert node_of(other, NodeRecord) is None


def test_garbage_is_an_error_and_never_an_empty_list() -> None:
    for text in ("no json", "[]", "{}", "null", '{"nodes": 7}', '{"nodes": ["w-0"]}'):
        with pytest.raises(NotUnderstoodError, match="the list of nodes was not understood"):
            entries_in(text, "nodes")


def test_a_number_may_be_unset_and_words_may_be_one_text() -> None:
    assert number_of({"set": True, "infinite": False, "number": 5}) == number_of(5) == 5.0
    for unset in ({"set": False, "number": 5}, {"set": True, "infinite": True, "number": 5}, 0, True, "5"):
        assert number_of(unset) is None
    assert words_of("a, b", ",") == words_of(["a", "b"], ",") == ["a", "b"]
    assert words_of(None, ",") == []


def printed(columns: Columns, *rows: dict[str, str]) -> str:
    """As squeue prints rows for `--Format=A:0<mark>,B:6<mark>`."""
    fields = re.findall(r"(\w+):(\d+)(~.+?[~!])(?:,|$)", columns.option.removeprefix("--Format="))
    cut = {name: int(width) or None for name, width, _ in fields}
    return "".join("".join(row[name][: cut[name]] + mark for name, _, mark in fields) + "\n" for row in rows)


def test_columns_have_any_text_and_nothing_where_slurm_has_nothing() -> None:
    columns = Columns(("A", "B"), {"B"})
    rows = [{"A": "a\n~0~|b\u2028", "B": "(null)"}, {"A": "", "B": "long enough"}]
    assert list(columns.rows(printed(columns, *rows))) == [{"A": rows[0]["A"], "B": ""}, {"A": "", "B": "long e"}]
    assert list(columns.rows("")) == []


def test_a_list_that_is_cut_off_or_has_other_columns_is_refused() -> None:
    columns = Columns(("A", "B"))
    text = printed(columns, {"A": "1", "B": "2"})
    with pytest.raises(NotUnderstoodError):
        list(columns.rows(text * 2 + text[: len(text) // 2]))
    with pytest.raises(NotUnderstoodError):
        list(columns.rows(printed(columns, {"A": "1", "B": text})))
