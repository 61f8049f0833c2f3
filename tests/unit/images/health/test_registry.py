"""Finding the checks: whatever lies in the folder, and none may spoil the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from images.health.contract import Node
from images.health.periodic import ALL_SECONDS
from images.health.registry import find_checks, fits

CHECK = """
from images.health.contract import Check
from images.health.verdict import ok
CHECK = Check(name={name!r}, summary="", contexts=frozenset({contexts!r}), hardware={hardware!r}, run=lambda *_: ok())
"""
Write = Callable[[str, str], ModuleType]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    package = ModuleType("made_up_checks")
    package.__path__ = [str(tmp_path)]
    sys.modules["made_up_checks"] = package

    def add(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        return package

    yield add
    for name in [name for name in sys.modules if name.startswith("made_up_checks")]:
        del sys.modules[name]


def declared(name: str, contexts: tuple[str, ...] = ("periodic",), hardware: str = "any") -> str:
    return CHECK.format(name=name, contexts=contexts, hardware=hardware)


def test_a_file_that_cannot_be_loaded_is_told_and_costs_only_its_own_check(write: Write) -> None:
    write("gpu_xid", "import no_such_module\n# Check(\n")
    write("gpu_links", "def (\n# Check(\n")
    write("a", declared("disks"))
    package = write("b", "from made_up_checks.a import CHECK as A\n" + declared("disks"))
    found = find_checks(package)
    assert list(found.checks) == ["disks"]
    assert "cannot be loaded" in found.broken["gpu-xid"]
    assert "cannot be loaded" in found.broken["gpu-links"]
    assert "b declares a second check" in found.broken["disks-again"]


def test_the_checks_that_come_with_slurmstack_can_all_be_loaded() -> None:
    found = find_checks()
    assert found.broken == {}
    for name, check in found.checks.items():
        assert name == check.name
        assert check.summary
        assert name.replace("-", "").isalnum()
        assert name.islower()
        assert 0 < check.seconds < ALL_SECONDS
    for node in (Node(name="w-0"), Node(name="w-0", infiniband=True, gpus=1)):
        assert set(find_checks(node=node).checks) == {name for name, each in found.checks.items() if fits(each, node)}
    first = find_checks(node=Node(name="w-0")).of("periodic", Node(name="w-0"))[0]
    assert first.name == "filesystem", "the first to touch the jail says how long that takes"
