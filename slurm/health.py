"""Health: what the checks on the nodes and the watcher are told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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


def watch_environment(health: Health) -> Mapping[str, str]:
    """The watcher's settings (images/health/watch/program.py)."""
    machines = health.machines
    # A drain for a check that nobody makes any more would else stay for ever.
    draining_nothing = {*health.report_only, *health.disabled, *(() if machines.follow else (KUBERNETES,))}
    return {
        "MAX_DRAINED": str(health.max_drained),
        "REPORT_ONLY": ",".join(sorted(draining_nothing)),
        "TESTS": "yes" if health.tests.enabled else "no",
        "MACHINES": "yes" if machines.follow else "no",
        "DRAIN_CONDITIONS": ",".join(sorted(machines.drain_conditions)),
        "REQUEUE_AFTER": "" if machines.requeue_after is None else str(machines.requeue_after),
        "RELEASE": "no" if machines.release == "none" else machines.release,
        "RELEASE_AFTER": str(machines.release_after),
        "RELEASE_CONDITION": machines.release_condition or "",
        "MAX_UNAVAILABLE": str(machines.max_unavailable),
    }


def node_test_settings(config: ClusterConfig, infiniband: Iterable[str]) -> str:
    """The file that the tests of nodes read (images/health/node_tests/plan.py)."""
    tests = config.health.tests
    settings = {
        "tests": list(tests.run),
        "infiniband": sorted(infiniband),
        "expected": tests.expected,
        "directory": tests.directory,
        "account": TESTS_ACCOUNT if config.accounting.enabled else "",
    }
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"
