"""Checks by hand, and the checks that there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.common.health.contract import Node, Thresholds
from images.health.local import Local
from images.health.periodic import ALL_SECONDS
from images.health.registry import MODULES, find_checks, has, wanted
from images.health.run import by_hand
from tests.stacks import ROOT


def test_each_file_is_a_check_that_can_be_used() -> None:
    files = {path.stem for path in (ROOT / "images/health/checks").glob("*.py")} - {"__init__"}
    assert files == {name for names in MODULES.values() for name in names}
    for name, check in find_checks().items():
        assert name == check.name
        assert name.replace("-", "").isalnum()
        assert name.islower()
        assert 0 < check.seconds < ALL_SECONDS


def test_a_node_has_the_checks_of_its_hardware() -> None:
    every = find_checks()
    for node in (Node(name="w-0"), Node(name="w-0", infiniband=True, gpus=1)):
        found = find_checks(node)
        assert set(found) == {name for name, each in every.items() if has(node, each.hardware)}
        assert [check.name for check in wanted(every, node, {"dns"})] == [name for name in found if name != "dns"]


def by_hand_here(directory: Path, *arguments: str) -> int:
    (directory / "proc").mkdir(exist_ok=True)
    node = Node(name="w-0", root=directory, state=directory / "state")
    return by_hand(arguments, Local(node=node, thresholds=Thresholds()), find_checks())


def test_what_there_is_not_is_a_mistake_of_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("run",), ("run", "disks", "clock"), ("run", "disk", "--json")):
        assert by_hand_here(tmp_path, *arguments) == 2
        assert capsys.readouterr().err


def test_one_that_is_run_says_what_it_finds_to_people_and_to_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert by_hand_here(tmp_path, "run", "gpu-xid") == 3
    assert capsys.readouterr().out.startswith("not checked gpu-xid: this node should have no gpu")
    assert by_hand_here(tmp_path, "run", "gpu-xid", "--json") == 3
    assert json.loads(capsys.readouterr().out)["status"] == "not checked"
