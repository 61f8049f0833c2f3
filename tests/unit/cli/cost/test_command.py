"""`slurmstack cost`, as a user calls it."""

from __future__ import annotations

import re

import pytest
import yaml
from rich.console import Console

from cli.commands.cost import cost
from cli.cost import present
from cli.cost.parts import cost_of
from config import load_config
from tests import stacks
from tests.stacks import ROOT


@pytest.mark.parametrize("where", ["the help", "docs/cost.md"])
def test_the_examples_are_right(where: str) -> None:
    text = str(cost.__doc__) if where == "the help" else (ROOT / where).read_text(encoding="utf-8")
    (example,) = re.findall(r"(?m)^ +slurmstack:prices:\n(?: {6}.*\n|\n)+", text)
    prices = yaml.safe_load(example)["slurmstack:prices"]
    sections = stacks.nebius()
    sections["worker_nodes"]["gpu"] = sections["worker_nodes"].pop("cpu")
    sections["partitions"]["cpu"]["pools"] = ["gpu"]
    assert load_config({**sections, "prices": prices}).prices.are_given


def test_a_large_stack_is_no_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-pool-with-a-name-as-long-as-they-can-be"[:40]
    sections = stacks.existing()
    sections["worker_nodes"][name] = {**sections["worker_nodes"]["plain"], "size": {"min": 0, "max": 4000}}
    found = cost_of(load_config({**sections, "prices": {"pools": {name: 1234.5}}}))
    console = Console(width=80, record=True, force_terminal=True)
    monkeypatch.setattr(present, "open_console", lambda: console)
    assert found is not None
    present.print_table(found)
    printed = console.export_text()
    assert max(map(len, printed.splitlines())) <= 80
    assert "4,938,000.0000" in printed
    assert "3,604,740,000.00" in printed
