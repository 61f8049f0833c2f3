"""Prometheus and Alertmanager of a cluster on the local Kubernetes, as tests ask them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from slurm.alerts import Alert, rules_file
from slurm.names import ALERTMANAGER_PORT, PROMETHEUS_PORT
from slurm.prometheus import CONFIG_DIR, PROMETHEUS_FILE
from tests.e2e.harness import SlurmOnKubernetes, wait_until

POD: Final = "prometheus-0"

_ASK: Final = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"

_HURRIED_PORT: Final = 19090
_START: Final = f"""
import json, pathlib, subprocess, sys, tempfile
directory = pathlib.Path(tempfile.mkdtemp(dir="/data"))  # the one place that can be written to
rules = directory / "rules.yml"
rules.write_text(sys.argv[1])
config = json.loads(pathlib.Path("{CONFIG_DIR}/{PROMETHEUS_FILE}").read_text())
config["global"] |= {{"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"}}
config["rule_files"] = [str(rules)]
config["scrape_configs"] += json.loads(sys.argv[2])
file = directory / "prometheus.yml"
file.write_text(json.dumps(config))
command = ["/usr/bin/prometheus", f"--config.file={{file}}", f"--storage.tsdb.path={{directory}}/data",
           "--web.listen-address=127.0.0.1:{_HURRIED_PORT}"]
with open(directory / "log", "w") as log:
    print(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid, directory)
"""
_END: Final = "import os, shutil, signal, sys; os.kill(int(sys.argv[1]), signal.SIGKILL); shutil.rmtree(sys.argv[2])"


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """One that runs in the cluster's own pod, which nobody but the dashboard reaches."""

    slurm: SlurmOnKubernetes
    port: int = PROMETHEUS_PORT

    def ask(self, path: str, **query: str) -> Any:
        """What its API answers."""
        return _answer(self.slurm, f"http://localhost:{self.port}/api/v1/{path}?{urlencode(query)}")["data"]

    def states(self) -> dict[str, str]:
        """`pending` or `firing`, by the names of alerts."""
        found = sorted(self.ask("alerts")["alerts"], key=lambda alert: str(alert["state"]), reverse=True)
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}


def told(slurm: SlurmOnKubernetes) -> set[str]:
    """Names of the alerts that Alertmanager has now; of some with whom they are about, as in `GpuErrors 0`."""
    found = _answer(slurm, f"http://localhost:{ALERTMANAGER_PORT}/api/v2/alerts?active=true&inhibited=true")
    return {_name(alert["labels"]) for alert in found}


_ABOUT: Final = {"SlurmTargetDown": "instance", "GpuErrors": "gpu"}
"""Alerts that are told for more than one reason, and the label by which a test tells these apart."""


def _name(labels: Mapping[str, str]) -> str:
    name = labels["alertname"]
    return f"{name} {labels[_ABOUT[name]]}" if name in _ABOUT else name


@contextmanager
def hurried(
    slurm: SlurmOnKubernetes, alerts: Iterable[Alert], wait: str, *jobs: Mapping[str, Any]
) -> Iterator[Prometheus]:
    """A second Prometheus beside the cluster's own, which reads the same and tells the same Alertmanager.

    It looks each few seconds, and an alert has to hold for `wait` alone (a duration of Prometheus): ours hold for up to
    an hour. What has been in the last quarter of an hour, or hour, it looks for in the last minute. `jobs`: what it
    reads besides, as in `scrape_configs`.
    """
    rules = rules_file(
        dataclasses.replace(alert, wait=wait, expression=_of_a_minute(alert.expression)) for alert in alerts
    )
    arguments = (rules, json.dumps(jobs))
    pid, directory = slurm.exec(POD, "python3", "-c", _START, *arguments, container="prometheus").split()
    try:
        found = Prometheus(slurm=slurm, port=_HURRIED_PORT)
        wait_until(lambda: _is_ready(found), "the second Prometheus answers")
        yield found
    finally:
        slurm.exec(POD, "python3", "-c", _END, pid, directory, container="prometheus", check=False)


def _of_a_minute(expression: str) -> str:
    """PromQL with short ranges: besides `wait`, all in which the rules are others than people have."""
    return re.sub(r"\[(15m|1h)(:30s)?\]", lambda found: "[1m:5s]" if found[2] else "[1m]", expression)


def _is_ready(prometheus: Prometheus) -> bool:
    url = f"http://localhost:{prometheus.port}/-/ready"
    return "is Ready" in prometheus.slurm.exec(POD, "python3", "-c", _ASK, url, container="prometheus", check=False)


def _answer(slurm: SlurmOnKubernetes, url: str) -> Any:
    return json.loads(slurm.exec(POD, "python3", "-c", _ASK, url, container="prometheus"))
