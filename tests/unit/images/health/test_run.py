"""The checks that there are."""

from __future__ import annotations

from images.common.health.contract import Node
from images.health.periodic import ALL_SECONDS
from images.health.registry import MODULES, find_checks, has, wanted
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
