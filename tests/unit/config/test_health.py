"""The section on health: names of checks and thresholds, limits, and the files made of them."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import jsonschema
import pytest

from config import load_config
from config.schema import stack_file_schema
from config.sections.health import CHECKS, KUBERNETES, WARN_AND_FAIL, Health
from images.health.registry import find_checks
from images.health.watch.machines import CONDITION
from images.health.watch.program import build
from slurm.conf import effective_settings
from slurm.health import check_settings, watch_environment
from tests import stacks
from tests.stacks import ROOT, with_change
from tests.unit.config.messages import complaints


def with_health(**health: Any) -> dict[str, Any]:
    return with_change(stacks.dev(), "health", health)


def test_the_checks_are_those_of_the_images() -> None:
    assert set(CHECKS) == set(find_checks().checks)


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_the_thresholds_are_those_that_the_check_reads(check: str) -> None:
    text = (ROOT / "images/health/checks" / f"{check.replace('-', '_')}.py").read_text(encoding="utf-8")
    read = set(re.findall(r"\bthresholds\.get\(\s*NAME,\s*\"([a-z_]+)\"", text))
    if "thresholds.get(NAME, key" in text:
        read |= set(re.findall(r"\(\"([a-z_]+)\", [A-Z_]+\)", text))
    assert CHECKS[check] == read


def test_every_threshold_is_explained() -> None:
    text = (ROOT / "docs/health.md").read_text(encoding="utf-8")
    for check, names in CHECKS.items():
        for name in [check, *names]:
            assert f"`{name}`" in text, f"{check}: {name}"


@pytest.mark.parametrize(
    ("health", "message"),
    [
        ({"disabled": ["disk"]}, "health.disabled.0: 'disk' is not a check; did you mean 'disks'?"),
        ({"disabled": [KUBERNETES]}, "health.disabled.0: 'kubernetes' is not a check"),
        ({"report_only": ["gpu"]}, "health.report_only.0: 'gpu' is not a check"),
        ({"thresholds": {"disk": {}}}, "health.thresholds: 'disk' is not a check; did you mean 'disks'?"),
        (
            {"thresholds": {"disks": {"fail": 97}}},
            "health.thresholds: 'fail' is not a threshold of disks (valid: enough_gib, fail_inodes_percent, ",
        ),
        ({"thresholds": {"munge": {"seconds": 1}}}, "health.thresholds: 'seconds' is not a threshold: munge has none"),
        (
            {"thresholds": {"disks": {"warn_percent": 98, "fail_percent": 97}}},
            "health.thresholds: of disks: warn_percent (98) has to be less than fail_percent (97)",
        ),
        (
            {"thresholds": {"disks": {"warn_percent": 99}}},
            "health.thresholds: of disks: warn_percent (99) has to be less than fail_percent (95, its default)",
        ),
        (
            {"thresholds": {"disks": {"fail_inodes_percent": 90}}},
            "health.thresholds: of disks: warn_inodes_percent (90, its default) has to be less than fail_inodes",
        ),
        (
            {"thresholds": {"memory": {"fail_percent": 101}}},
            "health.thresholds: of memory: fail_percent (101) is more than 100 %",
        ),
        (
            {"thresholds": {"clock": {"warn_seconds": 0, "fail_seconds": 0}}},
            "health.thresholds: of clock: warn_seconds (0) has to be less than fail_seconds (0)",
        ),
        (
            {"thresholds": {"processes": {"warn_zombies": 0, "fail_zombies": 0}}},
            "health.thresholds: of processes: warn_zombies (0) has to be at most fail_zombies (0)",
        ),
        (
            {"thresholds": {"infiniband": {"warn_downs_per_hour": 4}}},
            "health.thresholds: of infiniband: warn_downs_per_hour (4) has to be at most fail_downs_per_hour (3, its",
        ),
        (
            {"thresholds": {"gpu-xid": {"tell_seconds": 1e9}}},
            "health.thresholds: of gpu-xid: tell_seconds (1e+09) is more than 2592000 (30 days)",
        ),
        (
            {"enabled": False, "tests": {"enabled": True}},
            "health: has enabled: false, and tests.enabled: true has no effect without it; set enabled to true, or ",
        ),
        ({"tests": {"enabled": True, "run": []}}, "health.tests: has enabled: true, but run: [] leaves nothing"),
        ({"tests": {"run": ["cpu-speed", "cpu-speed"]}}, "health.tests.run: "),
        ({"disabled": ["disks", "dns", "disks"]}, "health.disabled: "),
        ({"report_only": ["disks", "disks"]}, "health.report_only: "),
        ({"max_drained": 10_001}, "health.max_drained: 10001 is more than the 10000 nodes that a cluster may have"),
        ({"thresholds": {"disks": {"fail_percent": -1}}}, "health.thresholds.disks.fail_percent: "),
        ({"interval": 5}, "health.interval: "),
        (
            {"max_drained": "110%"},
            "health.max_drained: '110%' is neither a number of nodes nor a part of them such as 10%",
        ),
        ({"max_drained": -1}, "health.max_drained: -1 is neither a number"),
        ({"max_drained": "ten"}, "health.max_drained: 'ten' is neither a number"),
        ({"machines": {"requeue_after": -1}}, "health.machines.requeue_after: "),
        (
            {"machines": {"follow": False, "release": "cordon"}},
            "health.machines: has follow: false, but follow: true is needed for release",
        ),
        (
            {"machines": {"follow": False, "release": "cordon", "conditions": True}},
            "health.machines: has follow: false, but follow: true is needed for conditions and release",
        ),
        ({"machines": {"release_condition": "A"}}, "health.machines: has release_condition, and release: none"),
        (
            {"machines": {"release": "cordon", "release_condition": "Ready"}},
            "health.machines.release_condition: 'Ready' is what Kubernetes itself writes",
        ),
        (
            {"machines": {"release": "cordon", "release_condition": CONDITION}},
            f"health.machines.release_condition: '{CONDITION}' is what the watcher itself writes",
        ),
        ({"machines": {"max_unavailable": "all"}}, "health.machines.max_unavailable: 'all' is neither"),
        ({"machines": {"drain_conditions": ["a b"]}}, "health.machines.drain_conditions"),
        (
            {"machines": {"drain_conditions": ["Ready"]}},
            "health.machines.drain_conditions.0: 'Ready' is looked at already",
        ),
        (
            {"machines": {"drain_conditions": [CONDITION]}},
            f"health.machines.drain_conditions.0: '{CONDITION}' is what the watcher itself writes",
        ),
    ],
)
def test_a_slip_gets_a_message(health: dict[str, Any], message: str) -> None:
    found = complaints(with_health(**health))
    assert len(found) == 1, found
    assert found[0].startswith(message), found


@pytest.mark.parametrize(
    "thresholds",
    [
        {"disks": {"warn_percent": 94.5, "fail_percent": 100}},
        {"infiniband": {"fail_downs_per_hour": 1}},
        {"gpu-xid": {"warn_seconds": 0, "tell_seconds": 2_592_000}},
    ],
    ids=["percent", "the first loss of a link fails", "30 days"],
)
def test_thresholds_in_their_order_are_taken(thresholds: dict[str, Any]) -> None:
    assert load_config(with_health(thresholds=thresholds)).health.thresholds == thresholds


def test_the_defaults_of_warnings_and_failures_are_those_of_the_checks() -> None:
    paired = {
        check: {name for name in names if name.startswith("fail_")}
        for check, names in CHECKS.items()
        if any(name.startswith("fail_") for name in names)
    }
    assert paired == {check: {fail for _, (fail, _) in pairs} for check, pairs in WARN_AND_FAIL.items()}
    for check, pairs in WARN_AND_FAIL.items():
        module = importlib.import_module(f"images.health.checks.{check}")
        for name, default in (each for pair in pairs for each in pair):
            assert getattr(module, name.removesuffix("_per_hour").upper()) == default, f"{check}: {name}"


@pytest.mark.parametrize("limit", [0, 3, "0%", "10%", "100%"])
def test_limits_are_numbers_or_parts(limit: int | str) -> None:
    assert load_config(with_health(max_drained=limit)).health.max_drained == limit


def test_the_schema_knows_the_section() -> None:
    schema = stack_file_schema()
    document = {f"slurmstack:{key}": value for key, value in with_health(max_drained="5%").items()}
    jsonschema.validate({"config": document}, schema)
    document["slurmstack:health"] = {"max_drained": "105%"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"config": document}, schema)


def test_slurm_runs_the_programs_of_the_worker_s_image() -> None:
    keys = effective_settings(load_config(with_health(interval=60)))
    assert keys["HealthCheckInterval"] == "60"
    assert {keys[key].rpartition("/")[2] for key in ("Prolog", "Epilog", "HealthCheckProgram")} == {
        "health-prolog",
        "health-epilog",
        "health-periodic",
    }


def test_without_checks_slurm_runs_none_of_them_and_still_has_an_epilog() -> None:
    keys = effective_settings(load_config(with_health(enabled=False)))
    assert keys["Epilog"] == "/usr/libexec/slurmstack/health-epilog", "it takes the job's own directories away"
    assert not keys.keys() & {"Prolog", "HealthCheckProgram"}


def test_the_checks_settings() -> None:
    health = Health(disabled=("dns", "clock"), report_only=("munge",), thresholds={"disks": {"fail_percent": 97}})
    assert json.loads(check_settings(health, ["h100"])) == {
        "disabled": ["clock", "dns"],
        "report_only": ["munge"],
        "thresholds": {"disks": {"fail_percent": 97.0}},
        "pools": {"h100": {"infiniband": True}},
    }


def test_the_watcher_s_settings() -> None:
    assert watch_environment(Health()) == {
        "MAX_DRAINED": "10%",
        "REPORT_ONLY": "",
        "MEASURE_NEW": "no",
        "MACHINES": "yes",
        "DRAIN_CONDITIONS": "",
        "REQUEUE_AFTER": "",
        "CONDITIONS": "no",
        "RELEASE": "no",
        "RELEASE_AFTER": "600",
        "RELEASE_CONDITION": "",
        "MAX_UNAVAILABLE": "1",
    }
    machines = {"drain_conditions": ["Maintenance"], "requeue_after": 60, "conditions": True}
    machines |= {"release": "evict", "release_after": 0, "release_condition": "Suspected", "max_unavailable": "5%"}
    health = Health.model_validate(
        {
            "max_drained": 2,
            "report_only": ["disks"],
            "disabled": ["dns"],
            "tests": {"enabled": True},
            "machines": machines,
        }
    )
    assert watch_environment(health) == {
        "MAX_DRAINED": "2",
        "REPORT_ONLY": "disks,dns",
        "MEASURE_NEW": "yes",
        "MACHINES": "yes",
        "DRAIN_CONDITIONS": "Maintenance",
        "REQUEUE_AFTER": "60",
        "CONDITIONS": "yes",
        "RELEASE": "evict",
        "RELEASE_AFTER": "0",
        "RELEASE_CONDITION": "Suspected",
        "MAX_UNAVAILABLE": "5%",
    }
    alone = watch_environment(Health.model_validate({"machines": {"follow": False}}))
    assert (alone["MACHINES"], alone["REPORT_ONLY"]) == ("no", "kubernetes")


@pytest.mark.parametrize(
    "health",
    [
        {},
        {"machines": {"follow": False}},
        {
            "max_drained": 2,
            "report_only": ["disks", "kubernetes"],
            "machines": {
                "drain_conditions": ["Maintenance"],
                "requeue_after": 60,
                "release": "evict",
                "release_condition": "HardwareIssuesSuspected",
                "max_unavailable": "5%",
            },
        },
    ],
    ids=["default", "alone", "all"],
)
def test_the_watcher_understands_its_settings(health: dict[str, Any]) -> None:
    said: list[str] = []
    environment = watch_environment(load_config(with_health(**health)).health)
    build(environment, said.append, dry_run=True)  # raises ValueError for what it does not understand
    assert "watched by Slurm's records alone" in said[0]  # as this is no pod
