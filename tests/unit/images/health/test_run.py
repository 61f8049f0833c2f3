"""Checks by hand, and the checks that there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.common.health.contract import Check, Hardware, Node, Result, Thresholds
from images.health.local import Local
from images.health.periodic import ALL_SECONDS
from images.health.registry import MODULES, find_checks, has, wanted
from images.health.run import by_hand
from images.health.verdict import fail, not_checked, ok, warn
from tests.stacks import ROOT
from tests.unit.images.health.places import run_at_once


def test_each_file_is_a_check_that_can_be_used() -> None:
    files = {path.stem for path in (ROOT / "images/health/checks").glob("*.py")} - {"__init__"}
    assert files == {name for names in MODULES.values() for name in names}
    for name, check in find_checks().items():
        assert name == check.name
        assert check.summary
        assert name.replace("-", "").isalnum()
        assert name.islower()
        assert 0 < check.seconds < ALL_SECONDS


def test_a_node_has_the_checks_of_its_hardware() -> None:
    every = find_checks()
    for node in (Node(name="w-0"), Node(name="w-0", infiniband=True, gpus=1)):
        found = find_checks(node)
        assert set(found) == {name for name, each in every.items() if has(node, each.hardware)}
        assert [check.name for check in wanted(every, node, {"dns"})] == [name for name in found if name != "dns"]


FULL = fail("node", "/ 97 % used", {'disk_used_ratio{path="/"}': 0.97})


class FakeShell:
    def __init__(self, directory: Path, output: pytest.CaptureFixture[str]) -> None:
        (directory / "proc").mkdir()
        self.node = Node(name="w-0", root=directory, state=directory / "state")
        self.checks: dict[str, Check] = {}
        self.off: frozenset[str] = frozenset()
        self.output = output

    def add(self, name: str, result: Result, hardware: Hardware = "any") -> None:
        self.checks[name] = Check(
            name=name,
            summary=f"looks at {name}",
            between_jobs=name == "gpu-free",
            run=lambda *_: result,
            hardware=hardware,
        )

    def __call__(self, *arguments: str) -> tuple[int, list[str]]:
        """The exit code, and what is said."""
        code = by_hand(arguments, Local(node=self.node, thresholds=Thresholds(), off=self.off), self.checks)
        printed = self.output.readouterr()
        assert bool(printed.err) == (code == 2)
        return code, printed.out.splitlines()


@pytest.fixture
def health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FakeShell:
    run_at_once(monkeypatch, "run")
    return FakeShell(tmp_path, capsys)


def test_what_there_is_not_is_a_mistake_of_use(health: FakeShell) -> None:
    health.add("disks", ok())
    for arguments in ((), ("run",), ("run", "disks", "clock"), ("walk",), ("run", "disk"), ("--json",)):
        assert health(*arguments) == (2, [])


def test_the_list_says_when_each_runs(health: FakeShell) -> None:
    health.add("disks", ok())
    health.add("gpu-xid", ok(), "gpu")
    health.add("dns", ok())
    health.off = frozenset({"dns"})
    health.add("gpu-free", ok())
    code, said = health("list")
    assert (code, [" ".join(line.split()) for line in said]) == (
        0,
        [
            "disks every interval looks at disks",
            "dns turned off looks at dns",
            "gpu-free between jobs looks at gpu-free",
            "gpu-xid never: no gpu looks at gpu-xid",
        ],
    )


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [
        (ok(), 0, ["ok disks"]),
        (warn("node", ""), 0, ["warn disks [node]"]),
        (FULL, 1, ["fail disks [node]: / 97 % used", '  disk_used_ratio{path="/"} 0.97']),
        (not_checked("no tool"), 3, ["not checked disks: no tool"]),
    ],
)
def test_the_exit_code_says_how_it_is_and_people_read_one_line_and_the_figures(
    health: FakeShell, result: Result, code: int, said: list[str]
) -> None:
    health.add("disks", result)
    assert health("run", "disks") == (code, said)


@pytest.mark.parametrize("arguments", [("run", "disks", "--json"), ("run", "--json", "disks")])
def test_programs_read_json(health: FakeShell, arguments: tuple[str, ...]) -> None:
    health.add("disks", FULL)
    code, (line,) = health(*arguments)
    said = json.loads(line)
    assert said.pop("seconds") >= 0
    assert (code, said) == (
        1,
        {
            "node": "w-0",
            "check": "disks",
            "status": "fail",
            "fault": "node",
            "message": "/ 97 % used",
            "values": {'disk_used_ratio{path="/"}': 0.97},
        },
    )
