"""Tests of the gate never fail for the machine's sake: none of them measures a clock, or counts on one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stacks import ROOT

CLOCKS = frozenset({
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "now", "utcnow",
})  # fmt: skip
OF_CLOCKS = frozenset({"time", "datetime"})
"""Modules and classes whose functions of these names are clocks."""

APT = {"test_images.py": "whether the program is there"}
"""Files that name it and never ask it for anything."""

SINFO = {
    "test_gpus.py": "what sinfo shows of GPUs",
    "test_images.py": "whether the program is there",
    "test_leaving.py": "which partitions sinfo shows",
    "test_rendered_files.py": "what sinfo shows of the nodes' resources",
}
"""Files in which sinfo itself is the subject. States of nodes are never asked of it: see tests/nodes.py."""

Rule = Callable[[ast.AST, str], bool]


def gate_files() -> list[Path]:
    """All of tests/gate, and of tests/slurm what has tests with the mark."""
    marked = [path for path in (ROOT / "tests/slurm").glob("test_*.py") if "mark.in_gate" in path.read_text()]
    return sorted([*marked, *(ROOT / "tests/gate").glob("**/*.py")])


def sleeps(node: ast.AST, file: str) -> bool:
    """Wait for what is to happen instead: `wait_until`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}


def reads_a_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    whole = ast.unparse(node.func)
    module, _, name = whole.rpartition(".")
    return name in CLOCKS and (module.rpartition(".")[2] in OF_CLOCKS or whole in CLOCKS - {"time", "now"})


def compares_a_clock(node: ast.AST, file: str) -> bool:
    """How long something takes says something about the machine."""
    return isinstance(node, ast.Compare) and any(reads_a_clock(part) for part in ast.walk(node))


def hides_a_clock(node: ast.AST, file: str) -> bool:
    """Under another name no rule would find it."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "time"
    return isinstance(node, ast.Import) and any(name.name == "time" and name.asname for name in node.names)


def asks_apt(node: ast.AST, file: str) -> bool:
    """The network is not what is tested."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return isinstance(text, str) and bool(re.search(r"\bapt-get\b|\bapt (-|install|update)", text)) and file not in APT


def asks_sinfo(node: ast.AST, file: str) -> bool:
    """It was seen to show an idle node as mixed for as long as it was asked."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return isinstance(text, str) and "sinfo" in text and file not in SINFO


def limits_a_wait(node: ast.AST, file: str) -> bool:
    """Limits of waits are there for what hangs, and there is one for all."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "wait_until":
        return False
    return len(node.args) > 2 or any(keyword.arg == "timeout" for keyword in node.keywords)


RULES: dict[str, Rule] = {
    "sleeps": sleeps,
    "compares a clock": compares_a_clock,
    "hides a clock": hides_a_clock,
    "asks apt": asks_apt,
    "asks sinfo": asks_sinfo,
    "limits a wait": limits_a_wait,
}


def durations(tree: ast.AST) -> set[str]:
    """Variables that hold a difference of clocks."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)]
    clocks = [node for node in assigned if any(reads_a_clock(part) for part in ast.walk(node.value))]
    return {ast.unparse(target) for node in clocks for target in node.targets}


def broken(source: str, file: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and durations(tree) & {ast.unparse(part) for part in ast.walk(node)}:
            yield f"{file}:{node.lineno} compares a clock"
        for name, rule in RULES.items():
            if rule(node, file):
                yield f"{file}:{getattr(node, 'lineno', 0)} {name}"


def test_files_of_the_gate_keep_to_its_rules() -> None:
    files = gate_files()
    assert len(files) > 10
    found = [line for path in files for line in broken(path.read_text(), path.name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("time.sleep(1)", "sleeps"),
        ("assert time.monotonic() - began < 20", "compares a clock"),
        ("while now > datetime.now(UTC) - day: pass", "compares a clock"),
        ("assert perf_counter() < 3", "compares a clock"),
        ("took = time.monotonic() - began; assert took < 3", "compares a clock"),
        ("from time import time", "hides a clock"),
        ("import time as t", "hides a clock"),
        ('run("apt-get install -y skopeo")', "asks apt"),
        ('run(f"apt update {more}")', "asks apt"),
        ('cluster.run(f"sinfo --nodes={name} --format=%T")', "asks sinfo"),
        ("wait_until(done, 'what', 30)", "limits a wait"),
        ("pod.wait_until(done, 'what', timeout=30)", "limits a wait"),
    ],
)
def test_each_rule_finds_what_it_is_for(line: str, rule: str) -> None:
    assert [*broken(line, "test_x.py")] == [f"test_x.py:1 {rule}"]
