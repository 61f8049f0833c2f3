"""Who is told once, and not at all, as Alertmanager itself judges with our configuration and with that of the page."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm.alerts import ALERTS, GROUP_BY, INHIBITIONS
from slurm.prometheus import alertmanager_file
from tests.programs.waiting import HANGS, wait_until
from tests.stacks import ROOT


def of_the_page() -> str:
    """The file that docs/monitoring.md has people write."""
    (found,) = re.findall(r"(?<=alertmanager.yml <<'END'\n).*?(?=^END$)", _page(), re.DOTALL | re.MULTILINE)
    return str(found)


def _page() -> str:
    return (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")


def test_the_page_has_the_groups_and_the_rules_that_ours_has() -> None:
    of_page = yaml.safe_load(of_the_page())
    assert of_page["route"]["group_by"] == list(GROUP_BY)
    assert of_page["inhibit_rules"] == list(INHIBITIONS)


WHOSE = {"cluster": "slurm"}
"""As Prometheus adds it to all that it sends (`external_labels`)."""


def listens(log: Path) -> str:
    """Where it does, by its own log: it has taken a port that was free."""
    found = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
    return found[1] if found else ""


@contextmanager
def running(alertmanager: list[str], place: Path, config: str) -> Iterator[str]:
    """Alertmanager with this configuration; yields the URL of its API."""
    (place / "alertmanager.yml").write_text(config)
    command = [
        *alertmanager, f"--config.file={place}/alertmanager.yml", f"--storage.path={place}/data",
        "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=",
    ]  # fmt: skip
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(command, cwd=place, stdout=log, stderr=subprocess.STDOUT) as daemon,
    ):
        try:
            wait_until(lambda: listens(place / "log") or daemon.poll() is not None)
            assert daemon.poll() is None, (place / "log").read_text()
            yield f"http://{listens(place / 'log')}/api/v2"
        finally:
            daemon.kill()


def told(url: str, alerts: Sequence[dict[str, str]]) -> list[list[dict[str, str]]]:
    """The alerts of which somebody would be told, those of one message together."""
    severities = {alert.name: alert.severity for alert in ALERTS}
    whole = [{"labels": {**WHOSE, "severity": severities[labels["alertname"]], **labels}} for labels in alerts]
    request = urllib.request.Request(f"{url}/alerts", json.dumps(whole).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANGS):
        pass
    before: list[list[dict[str, str]]] = []

    def is_settled() -> bool:
        """All have arrived, and the same is said of them twice, half a second apart."""
        nonlocal before
        time.sleep(0.5)
        with urllib.request.urlopen(f"{url}/alerts/groups", timeout=HANGS) as answer:
            groups = json.load(answer)
        now = [found for group in groups if (found := _active(group["alerts"]))]
        is_it = sum(len(group["alerts"]) for group in groups) == len(alerts) and now == before
        before = now
        return is_it

    wait_until(is_settled)
    return before


def _active(alerts: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    return [alert["labels"] for alert in alerts if not alert["status"]["inhibitedBy"]]


@pytest.fixture(scope="module", params=["ours", "of the page"])
def config(request: pytest.FixtureRequest) -> str:
    return alertmanager_file() if request.param == "ours" else of_the_page()


def names(messages: list[list[dict[str, str]]]) -> list[str]:
    return sorted(alert["alertname"] for message in messages for alert in message)


def test_a_hundred_lost_workers_are_one_message_and_those_of_another_cluster_another(
    alertmanager: list[str], tmp_path: Path, config: str
) -> None:
    lost = [{"alertname": "SlurmTargetDown", "instance": f"n{number}:9306"} for number in range(100)]
    with running(alertmanager, tmp_path, config) as url:
        messages = told(url, [*lost, {**lost[0], "cluster": "other"}, {"alertname": "JailNearlyFull"}])
    assert sorted(len(message) for message in messages) == [1, 1, 100]


def test_of_what_follows_from_slurmctld_being_down_nobody_is_told(
    alertmanager: list[str], tmp_path: Path, config: str
) -> None:
    warnings = [{"alertname": alert.name} for alert in ALERTS if alert.severity == "warning" and "Slurm" in alert.name]
    others = [{"alertname": "StateVolumeNearlyFull"}, {"alertname": "SlurmdbdDown"}, {"alertname": "JailSlow"}]
    elsewhere = {"alertname": "SlurmNodesDown", "cluster": "other"}
    down = {"alertname": "SlurmctldDown"}
    with running(alertmanager, tmp_path, config) as url:
        found = names(told(url, [down, *warnings, *others, elsewhere]))
    assert found == sorted(["SlurmctldDown", "StateVolumeNearlyFull", "SlurmdbdDown", "JailSlow", "SlurmNodesDown"])
