"""`slurmstack cost`, as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from cli.app import app
from cli.commands.cost import cost
from cli.cost import present
from cli.cost.parts import cost_of
from cli.errors import Failure
from config import load_config
from tests import stacks
from tests.stacks import ROOT, with_change
from tests.unit.cli.command_line import stack_file


@pytest.mark.parametrize("where", ["the help", "docs/usage.md"])
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


PRICED = with_change(stacks.existing(), "prices", {"pools": {"cpu": 0.5, "gpu": 28}, "storage": {"shared": 0.073}})


def call(stack: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["cost", "--config", str(stack), *options], env={"COLUMNS": "200"})


def test_the_table_has_each_part_the_sums_and_what_is_missing(tmp_path: Path) -> None:
    sections = with_change(PRICED, "worker_nodes.gpu.size", {"min": 0, "max": 64})
    done = call(stack_file(tmp_path, sections))
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "USD AN HOUR MIN MAX OF ONE AT MIN AT MAX",
        "cpu 4 4 0.5000 2.0000 2.0000",
        "gpu 0 64 28.0000 0.0000 1,792.0000",
        "jail 1,024 GiB 1 1 0.1024 0.1024 0.1024",
        "controller 10 GiB 1 1 - - -",
        "accounting.database 10 GiB 1 1 - - -",
        "login load balancer 1 1 - - -",
        "an hour at least 2.1024 1,794.1024",
        "730 hours at least 1,534.75 1,309,694.75",
        "no price in prices.storage.default: controller 10 GiB, accounting.database 10 GiB",
        "no price in prices.load_balancer: login load balancer",
    ]


def test_a_script_gets_the_same_as_json(tmp_path: Path) -> None:
    done = call(stack_file(tmp_path, PRICED), "--json")
    data = json.loads(done.stdout)
    assert (done.exit_code, data["stack"], data["currency"]) == (0, "test", "USD")
    assert data["hour"] == {"min": 58.1024, "max": 58.1024}


def test_a_stack_without_prices_gets_an_example_that_is_right(tmp_path: Path) -> None:
    failure = call(stack_file(tmp_path, stacks.dev())).exception
    assert isinstance(failure, Failure)
    assert (failure.message, failure.code) == ("the stack file has no prices", 2)
    prices = yaml.safe_load(failure.hint.partition("\n")[2])["slurmstack:prices"]
    found = cost_of(load_config({**stacks.dev(), "prices": prices}))
    assert found is not None
    assert not found.without_price
