"""Tests of nodes in the stack file: names, figures, and the file that the program reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config import load_config
from config.sections.health import DEFAULT, TESTS
from images.health.node_tests.catalog import TESTS as CATALOG
from images.health.node_tests.plan import Settings
from slurm.health import node_test_settings
from slurm.policy import policy
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints


def with_tests(**tests: Any) -> dict[str, Any]:
    return with_change(stacks.dev(), "health", {"tests": {"enabled": True, **tests}})


def test_tests_and_figures_are_those_of_the_images() -> None:
    assert {name: tuple(sorted(test.figures)) for name, test in CATALOG.items()} == {
        name: tuple(sorted(figures)) for name, figures in TESTS.items()
    }
    assert tuple(name for name, test in CATALOG.items() if test.default) == DEFAULT


@pytest.mark.parametrize(
    "tests",
    [
        {},
        {
            "run": ["cpu-speed"],
            "intervals": {"cpu-speed": 3600},
            "max_under_test": 3,
            "expected": {"fast": {"cpu-speed": {"events": 5000}}},
            "platforms": {"default": "fast"},
            "directory": "/scratch",
            "nccl_tests": "/opt/nccl-tests/all_reduce_perf",
            "qos": "low",
            "partition": "main",
        },
    ],
    ids=["default", "all"],
)
def test_the_program_understands_the_file(tests: dict[str, Any]) -> None:
    settings = Settings.parse(json.loads(node_test_settings(load_config(with_tests(**tests)), ["default"])))
    assert [test.name for test in settings.tests] == list(tests.get("run", DEFAULT))
    assert settings.infiniband == {"default"}
    assert settings.account == "health"
    assert settings.directory == tests.get("directory", "/var/tmp")


def test_who_submits_them_has_an_account_of_its_own() -> None:
    assert "slurm" not in policy(load_config(stacks.dev()))["users"]
    declared = policy(load_config(with_tests()))
    assert declared["users"]["slurm"]["associations"] == {"health": {}}
    assert set(declared["accounts"]) == {"default", "health"}


def test_an_account_that_is_declared_stays_as_it_is() -> None:
    sections = with_change(with_tests(account="ops"), "accounts", {"ops": {"fairshare": 7}})
    sections = with_change(sections, "users.alice.accounts", ["ops"])
    declared = policy(load_config(sections))
    assert declared["accounts"]["ops"]["fairshare"] == 7
    assert declared["users"]["slurm"]["default_account"] == "ops"


def test_without_accounting_there_is_no_account() -> None:
    sections = with_change(with_tests(), "accounting", {"enabled": False})
    assert json.loads(node_test_settings(load_config(sections), []))["account"] == ""


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        ({"platforms": {"defualt": "fast"}}, "health.tests.platforms: 'defualt' is not a pool of worker_nodes"),
        ({"partition": "mian"}, "health.tests.partition: 'mian' is not a partition"),
    ],
)
def test_a_name_that_the_stack_does_not_have_is_told(tests: dict[str, Any], told: str) -> None:
    (found,) = complaints(with_tests(**tests))
    assert found.startswith(told)
    sections = with_tests(partition="main")
    del sections["partitions"]
    assert load_config(sections).health.tests.partition == "main", "which is there where none is written"
