"""Health: checks, the watcher and tests of nodes are told what the stack file says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from config import load_config
from config.sections.health import CHECKS, TESTS
from images.health.checks import find_checks
from images.health.node_tests.catalog import TESTS as CATALOG
from images.health.node_tests.slurm import Settings
from slurm.conf import effective_settings
from slurm.health import node_test_settings
from tests import stacks
from tests.stacks import ROOT, with_change


def with_health(**health: Any) -> dict[str, Any]:
    return with_change(stacks.dev(), "health", health)


def test_the_checks_are_those_of_the_images() -> None:
    assert set(CHECKS) == set(find_checks())


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_the_thresholds_are_those_that_the_check_reads(check: str) -> None:
    text = (ROOT / "images/health/checks" / f"{check.replace('-', '_')}.py").read_text(encoding="utf-8")
    read = set(re.findall(r"\bnode\.limit\(\s*NAME,\s*\"([a-z_]+)\"", text))
    assert CHECKS[check] == read


def test_every_threshold_is_explained() -> None:
    text = (ROOT / "docs/health.md").read_text(encoding="utf-8")
    for check, names in CHECKS.items():
        for name in [check, *names]:
            assert f"`{name}`" in text, f"{check}: {name}"


def test_without_checks_slurm_runs_none_of_them_and_still_has_an_epilog() -> None:
    keys = effective_settings(load_config(with_health(enabled=False)))
    assert keys["Epilog"] == "/usr/libexec/slurmstack/health-epilog", "it takes the job's own directories away"
    assert not keys.keys() & {"Prolog", "HealthCheckProgram"}


def with_tests(**tests: Any) -> dict[str, Any]:
    return with_change(stacks.dev(), "health", {"tests": {"enabled": True, **tests}})


def test_tests_and_figures_are_those_of_the_images() -> None:
    assert {name: tuple(sorted(test.figures)) for name, test in CATALOG.items()} == {
        name: tuple(sorted(figures)) for name, figures in TESTS.items()
    }


@pytest.mark.parametrize("run", [{}, {"run": ["cpu-speed"], "directory": "/scratch"}], ids=["default", "all"])
def test_the_program_understands_the_file(run: dict[str, Any]) -> None:
    settings = Settings.parse(json.loads(node_test_settings(load_config(with_tests(**run)), ["default"])))
    assert [test.name for test in settings.tests] == list(run.get("run", TESTS))
    assert (settings.infiniband, settings.account) == (frozenset({"default"}), "health")
    assert settings.directory == run.get("directory", "/var/tmp")
