"""`slurmstack cost`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from cli.cost.parts import cost_of
from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.command_line import slurmstack, stack_file

PRICED = with_change(stacks.existing(), "prices", {"pools": {"cpu": 0.5, "gpu": 28}, "storage": {"shared": 0.073}})


def test_the_table_has_each_part_the_sums_and_what_is_missing(tmp_path: Path) -> None:
    sections = with_change(PRICED, "worker_nodes.gpu.size", {"min": 0, "max": 64})
    done = slurmstack("cost", "--config", str(stack_file(tmp_path, sections)))
    assert done.returncode == 0, done.stderr
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
    done = slurmstack("cost", "--json", "--config", str(stack_file(tmp_path, PRICED)))
    data = json.loads(done.stdout)
    assert (done.returncode, data["stack"], data["currency"]) == (0, "test", "USD")
    assert data["hour"] == {"min": 58.1024, "max": 58.1024}


def test_a_stack_without_prices_gets_an_example_that_is_right(tmp_path: Path) -> None:
    done = slurmstack("cost", "--config", str(stack_file(tmp_path, stacks.dev())))
    assert (done.returncode, done.stdout) == (2, "")
    first, _, *example = done.stderr.splitlines()
    assert first == "error: the stack file has no prices"
    prices = yaml.safe_load("\n".join(example))["slurmstack:prices"]
    found = cost_of(load_config({**stacks.dev(), "prices": prices}))
    assert found is not None
    assert not found.without_price
