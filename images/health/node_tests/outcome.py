"""What a run that has ended means for its nodes: from old records to new ones. Nothing here asks or changes anything.

No node fails for one measurement. Alone, it has to be bad twice in a row; in a pair it has to be bad with two partners
that are well with others (`split.py`). Until then it is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from images.health.contract import Result, Status
from images.health.node_tests.contract import NodeTest
from images.health.node_tests.plan import NodeView, standing
from images.health.node_tests.results import Record
from images.health.node_tests.split import is_guilty, witnesses

_ONCE: Final = "measured once"


def news(test: NodeTest, names: tuple[str, ...], began: int, nodes: Mapping[str, NodeView]) -> list[str]:
    """Of the nodes of a run those that do not have it on record yet, and are the machines that it ran on."""
    return [
        name
        for name in names
        if name in nodes
        and nodes[name].started_at <= began
        and ((record := nodes[name].records.get(test.name)) is None or record.at < began)
    ]


def after(
    test: NodeTest, names: tuple[str, ...], began: int, result: Result, nodes: Mapping[str, NodeView]
) -> dict[str, Record]:
    """The new records of the nodes for which a run is news, by node."""
    new = {}
    for name in news(test, names, began, nodes):
        last = nodes[name].records.get(test.name)
        if test.nodes == 1:
            new[name] = _alone(result, began, last)
        else:
            partner = next(other for other in names if other != name)
            new[name] = _in_pair(result, began, partner, last)
    return new


def _alone(result: Result, began: int, last: Record | None) -> Record:
    if result.status is not Status.FAIL:
        return Record(at=began, result=result)
    if last is not None and last.result.status in {Status.WARN, Status.FAIL}:
        return Record(at=began, result=result)
    warning = replace(result, status=Status.WARN, message=f"{result.message}, {_ONCE}")
    return Record(at=began, result=warning)


def _in_pair(result: Result, began: int, partner: str, last: Record | None) -> Record:
    met = dict(last.failed_with) if last is not None else {}
    told = replace(result, message=f"with {partner}: {result.message}")
    if result.status is Status.FAIL:
        return Record(at=began, result=replace(told, status=Status.WARN), failed_with={**met, partner: began})
    # What was not checked says nothing about what was suspected before.
    return Record(at=began, result=told, failed_with=met if result.status is Status.NOT_CHECKED else {})


def verdicts(test: NodeTest, nodes: Mapping[str, NodeView]) -> dict[str, Record]:
    """The records that change because it is known now which nodes of the pairs that failed are bad, by node."""
    standings = {name: standing(test, node, nodes) for name, node in nodes.items()}
    changed = {}
    for name, node in nodes.items():
        record = node.records.get(test.name)
        if record is None or record.result.status is not Status.WARN or not is_guilty(name, standings):
            continue
        others = " and ".join(witnesses(name, standings))
        message = f"{record.result.message}; it failed with {others}, which are well with others"
        changed[name] = replace(record, result=replace(record.result, status=Status.FAIL, message=message))
    return changed
