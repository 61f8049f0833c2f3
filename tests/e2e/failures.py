"""What is said about a failure in the moment of it: a run that is cut short shows no summary."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from cli.errors import Failure
from local import nodes, processes
from tests.e2e.harness import SlurmOnKubernetes

_FIRST_LINES, _LAST_LINES = 3, 5
"""Of a failure's message: what was wanted comes first, what a command said at its end comes last."""

LANE = os.environ.get("PYTEST_XDIST_WORKER", "")
"""The name of the lane that this process is, where several run side by side. Each has a Slurm cluster of its own."""


class Told:
    """When a test fails, notes how its cluster looks, leaves all logs in one folder, and says so in that moment."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        used = getattr(item, "funcargs", {}).values()
        slurm = next((value for value in used if isinstance(value, SlurmOnKubernetes)), None)
        if report.when != "teardown" and report.failed and slurm:
            try:
                report.sections.append(("glance", at_a_glance(slurm)))
                folder = slurm.collect_logs(item.name.replace("/", "_"))
                report.sections.append(("logs", f"pods, Slurm and Kubernetes: {folder}"))
            except Failure as failure:
                report.sections.append(("logs", str(failure)))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal and not LANE:
            for line in ("", *lines) if (lines := in_short(report)) else ():
                terminal.write_line(line)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it once more at the very end, where it is looked for."""
        for outcome in ("failed", "error"):
            for report in terminalreporter.stats.get(outcome, []):
                for line in in_short(report):
                    terminalreporter.write_line(line)


def have_told(config: pytest.Config) -> None:
    """Have failures of tests with a cluster told, once, however many folders with such tests a run has."""
    if not config.pluginmanager.has_plugin("failures"):
        config.pluginmanager.register(Told(config), "failures")


def at_a_glance(slurm: SlurmOnKubernetes) -> str:
    """Pods and machines that are not as they should be, what Slurm has of its nodes, and the last warnings."""
    namespace = ("-n", slurm.namespace)

    def look(*arguments: str) -> list[str]:
        return slurm.look(*arguments).splitlines()

    pods = look("get", "pods", *namespace, "--no-headers", "-o", "wide")
    machines = look("get", "nodes", "--no-headers")
    warnings = look(
        "get", "events", *namespace, "--no-headers", "--field-selector=type=Warning", "--sort-by=.lastTimestamp"
    )
    lost = [line.split()[0] for line in machines if " Ready " not in line and line.startswith("node-")]
    daemons = [component for name in lost for component in nodes.components(name)]
    slurmctld = ("exec", *namespace, "controller-0", "-c", "slurmctld", "--")
    shown = {
        "machines": [line for line in machines if " Ready " not in line],
        "daemons": [line for component in daemons for line in _last_words(component)],
        "pods": [line for line in pods if not _is_well(line)],
        "warnings": warnings[-5:],
        "sinfo": look(*slurmctld, "sinfo", "-N", "-h", "-O", "NodeList,StateLong,Reason:60"),
        "squeue": look(*slurmctld, "squeue", "-h")[:5],
    }
    return "\n".join(f"{name}: {line}" for name, lines in shown.items() for line in lines)


def _last_words(component: str) -> list[str]:
    state = "runs" if processes.is_running(component) else "does not run"
    return [f"{component} {state}", *(line[:300] for line in processes.log_tail(component, 4).splitlines())]


def _is_well(pod: str) -> bool:
    """For a line of `kubectl get pods`: name, ready ones of all, status."""
    _, ready, status = (*pod.split(), "", "", "")[:3]
    of, _, all_of = ready.partition("/")
    return status == "Completed" or (status == "Running" and of == all_of)


def in_short(report: Any) -> list[str]:
    """The failure's message, and what was noted beside it; empty for a report that is not one."""
    if not (report.failed or report.outcome == "rerun"):
        return []
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).splitlines()
    long = len(lines) > _FIRST_LINES + _LAST_LINES
    message = [*lines[:_FIRST_LINES], "...", *lines[-_LAST_LINES:]] if long else lines
    beside = [line for name, text in report.sections if name in {"logs", "glance"} for line in text.splitlines()]
    return [f"{report.nodeid} ({report.when}, {report.outcome})", *(f"  {line}" for line in (*message, *beside))]
