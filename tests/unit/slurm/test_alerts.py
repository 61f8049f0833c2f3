"""Alerts: each has its section of the runbooks, and asks for figures that a program of ours gives."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from images.common.health.contract import Thresholds
from images.exporter.names import OURS, SLURMS
from images.health.checks import disks, filesystem
from images.health.periodic import metrics
from images.health.runner import Outcome
from images.health.verdict import ok
from slurm.alerts import ALERTS, RUNBOOKS, rules_file

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("runbooks", [None, "https://git.example.com/docs/runbooks.md"])
def test_each_alert_says_where_its_section_is_and_where_people_find_it(runbooks: str | None) -> None:
    for rule in json.loads(rules_file(runbooks=runbooks))["groups"][0]["rules"]:
        annotations = rule["annotations"]
        page, _, section = annotations["runbook"].partition("#")
        assert f"\n## {rule['alert']}\n" in (ROOT / page).read_text(encoding="utf-8")
        assert section == rule["alert"].lower()
        assert annotations.get("runbook_url") == (runbooks and f"{runbooks}#{section}")


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / RUNBOOKS).read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [alert.name for alert in ALERTS]


def test_each_figure_in_an_alert_is_one_that_a_program_of_ours_gives() -> None:
    """Of GPUs, DCGM's: nothing here reads them (docs/monitoring.md). The jail is at /jail in each worker."""
    outcomes = {
        disks.NAME: Outcome(result=disks.judge(Path("/jail"), os.statvfs(ROOT), Thresholds())),
        filesystem.NAME: Outcome(result=ok()),
    }
    health = metrics(outcomes, 0)
    given = {*OURS, *SLURMS, *re.findall(r"^slurmstack_\w+", health, re.MULTILINE)}
    expressions = " ".join(alert.expression for alert in ALERTS)
    assert set(re.findall(r"\bslurm(?:stack)?_\w+", expressions)) <= given
    for series in re.findall(r"\bslurmstack_health_\w+{[^}]*}", expressions):
        assert f"\n{series} " in health
