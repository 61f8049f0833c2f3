"""What is said about a failure in the moment of it: a run that is cut short shows no summary."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from cli.errors import Failure
from tests.e2e.harness import SlurmOnKubernetes

LANE = os.environ.get("PYTEST_XDIST_WORKER", "")
"""The name of the lane that this process is, where several run side by side. Each has a Slurm cluster of its own."""


class Told:
    """When a test fails, leaves all logs of its cluster in one folder, and says so in that moment."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        used = getattr(item, "funcargs", {}).values()
        slurm = next((value for value in used if isinstance(value, SlurmOnKubernetes)), None)
        if report.when != "teardown" and report.failed and slurm:
            try:
                folder = slurm.collect_logs(item.name.replace("/", "_"))
                report.sections.append(("logs", f"pods, Slurm and Kubernetes: {folder}"))
            except Failure as failure:
                report.sections.append(("logs", str(failure)))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal and not LANE and report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            logs = [text for name, text in report.sections if name == "logs"]
            for line in (f"{report.nodeid} ({report.when})", str(crash.message if crash else report.longrepr), *logs):
                terminal.write_line(line[:3000])


def have_told(config: pytest.Config) -> None:
    """Have failures of tests with a cluster told, once, however many folders with such tests a run has."""
    if not config.pluginmanager.has_plugin("failures"):
        config.pluginmanager.register(Told(config), "failures")
