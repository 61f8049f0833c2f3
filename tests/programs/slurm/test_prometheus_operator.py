"""Rules for an existing Prometheus judge this cluster alone, by its own promtool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from config import load_config
from slurm.alerts import ALERTS
from slurm.prometheus import rules
from tests import alerts, stacks
from tests.stacks import with_change

EXISTING = load_config(with_change(stacks.existing(), "monitoring", {"existing": {"namespace": "monitoring"}}))

OWN, FOREIGN = 'namespace="slurm"', 'namespace="other"'

SERIES = (
    ("SlurmctldDown", "slurmstack_slurmctld_up{{{}}}", "0x200"),
    ("SlurmPrologFailed", 'slurmstack_node_drained{{{},node="n0",reason_kind="prolog"}}', "1x200"),
    ("SlurmNodesDown", 'slurmstack_node_down{{{},node="n0"}}', "1x200"),
)


def wrong(promtool: str, place: Path, *cases: alerts.Case) -> str:
    """What promtool says of the cases that are otherwise; see `alerts`."""
    return alerts.wrong(promtool, place, json.dumps(rules(EXISTING)), cases)


def test_an_alert_is_about_this_cluster_and_not_about_another(promtool: str, tmp_path: Path) -> None:
    own, foreign = (
        [(name, {series.format(labels): values}, labels == OWN) for name, series, values in SERIES]
        for labels in (OWN, FOREIGN)
    )
    assert wrong(promtool, tmp_path, *own, *foreign) == ""


def test_an_exporter_that_is_missing_is_not_hidden_by_another_cluster_s(promtool: str, tmp_path: Path) -> None:
    up = "slurmstack_slurmctld_up{{{}}}"
    cases = [("SlurmFiguresMissing", {up.format(labels): "1x200"}, labels == FOREIGN) for labels in (OWN, FOREIGN)]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_nodes_of_two_clusters_are_not_counted_together(promtool: str, tmp_path: Path) -> None:
    def drained(*where: str) -> dict[str, str]:
        series = 'slurmstack_node_drained{{{},node="n{}",reason_kind="health"}}'
        return {series.format(labels, number): "1x200" for number, labels in enumerate(where)}

    cases = [("SlurmManyNodesDrained", drained(OWN, OWN, third), third == OWN) for third in (OWN, FOREIGN)]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_only_of_a_node_of_this_cluster_that_is_down_nobody_is_told_twice(promtool: str, tmp_path: Path) -> None:
    worker = {f'up{{{OWN},job="slurmstack-jobs",instance="n0:9306"}}': "0x200"}
    known = 'slurmstack_node_down{{{},node="n0"}}'
    cases = [
        ("SlurmTargetDown", {**worker, known.format(whose): "1x200"}, whose == FOREIGN) for whose in (OWN, FOREIGN)
    ]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_all_alerts_are_there_and_promtool_takes_them(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(json.dumps(rules(EXISTING)))
    command = [promtool, "check", "rules", "rules.yml"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout
