"""Health: what the checks on the nodes and the watcher are told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from config.cluster import ClusterConfig
from config.sections.health import KUBERNETES, Health

WATCH: Final = "health-watch"
"""Name of the watcher's Deployment, and of its program."""

SETTINGS_MAP: Final = "health-settings"
"""ConfigMap for the checks. Its name is fixed: a change reaches the pods of the workers without a restart."""

SETTINGS_FILE: Final = "settings.json"
TESTS_FILE: Final = "tests.json"
TESTS_ACCOUNT: Final = "health"
"""On whose account tests run. It is made where accounting is on and the stack file does not declare it."""

TESTER: Final = "health-tests"
"""The program that runs tests of nodes, and its container beside the watcher's."""

SETTINGS_DIR: Final = "/config/health"
"""Where images/health/local.py reads it."""


def check_settings(health: Health, infiniband: Iterable[str]) -> str:
    """The file that the checks read. `infiniband`: pools whose machines have it."""
    settings = {
        "disabled": sorted(health.disabled),
        "report_only": sorted(health.report_only),
        "thresholds": {check: dict(sorted(limits.items())) for check, limits in sorted(health.thresholds.items())},
        "programs": {name: program.model_dump(mode="json") for name, program in sorted(health.programs.items())},
        "pools": {pool: {"infiniband": True} for pool in sorted(infiniband)},
    }
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"


def watch_settings(health: Health) -> str:
    """What the watcher is told (images/health/watch/watcher.py)."""
    # A drain for a check that nobody makes any more would else stay for ever.
    draining_nothing = {*health.report_only, *health.disabled, *(() if health.machines.follow else (KUBERNETES,))}
    settings = {
        "max_drained": health.max_drained,
        "report_only": sorted(draining_nothing),
        "tests": health.tests.enabled,
        "machines": health.machines.model_dump(mode="json"),
    }
    return json.dumps(settings, sort_keys=True)


def node_test_settings(config: ClusterConfig, infiniband: Iterable[str]) -> str:
    """The file that the tests of nodes read (images/health/node_tests/slurm.py)."""
    tests = config.health.tests
    settings = {
        "tests": list(tests.run),
        "infiniband": sorted(infiniband),
        "expected": tests.expected,
        "directory": tests.directory,
        "account": TESTS_ACCOUNT if config.accounting.enabled else "",
    }
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"
