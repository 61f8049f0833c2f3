"""health-periodic: Slurm's `HealthCheckProgram`, on every node in every interval.

It runs the checks and tells what they found: in the comment of the node's record, when that changed, and now and then,
so that it is known to hold; in the pod's log, when it changed; in the metrics file, always. It drains nothing and lifts
no drain: that is for the watcher, which sees all nodes. It always succeeds, as Slurm would only log that it did not.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from images.common.command import Runner, run
from images.common.health.contract import NAME_PREFIX, Check, Result, Status
from images.common.health.report import Report, changes, encode, gists, note_of
from images.common.health.slurm import ASK_SECONDS, Slurm, SlurmError
from images.common.log import Log, open_pod_log
from images.health import state
from images.health.checks import find_checks
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_jobs
from images.health.runner import result_of, run_checks

REFRESH_SECONDS: Final = 300
"""A report of something that is not well is renewed so often, so that the watcher can tell an old one from one that
still holds."""

WELL_REFRESH_SECONDS: Final = 1800
"""One that all is well, give or take a tenth by the node's name: from 10,000 nodes made at the same time still
five a second, each of which is two questions to slurmctld. When a report is old says images/common/health/report.py."""

SETTLE_SECONDS: Final = 60
"""So long after a change every run renews the report. A drain is lifted only for a report that is some seconds newer
than it: one from the very moment of the drain would else hold the node for `REFRESH_SECONDS`."""

ALL_SECONDS: Final = 40.0
"""For all checks together. slurmd ends the program after 60 s."""


@dataclass(kw_only=True)
class Periodic:
    """One run."""

    local: Local
    checks: Mapping[str, Check]
    log: Callable[[str], None]
    runner: Runner
    now: Callable[[], float] = time.time

    def run(self) -> None:
        """Run the checks and tell what they found."""
        began = self.now()
        node = with_jobs(self.local.node, {})
        last = self._last()
        checks = [
            check for name, check in self.checks.items() if name not in self.local.off and node.has(check.hardware)
        ]
        now = [check for check in checks if not (check.between_jobs and node.other_jobs)]
        results = run_checks(now, node, seconds=ALL_SECONDS)
        # What looks between jobs says what it, or a prolog, found last until it can look again.
        kept = {**last.get("kept", {}), **{name: vars(result) for name, result in results.items()}}
        last["kept"] = {check.name: kept[check.name] for check in checks if check.between_jobs and check.name in kept}
        results |= {name: result_of(entry) for name, entry in last["kept"].items()}
        self._publish(results, int(began), last)
        with contextlib.suppress(OSError):  # a dashboard shows that the last metrics are old
            state.write(self.local.node, state.METRICS, metrics(results, self.now()))

    def _last(self) -> dict[str, Any]:
        """What the last run has left for this one."""
        last, prolog = (state.recall(self.local.node, name) for name in (state.LAST, state.PROLOG))
        if prolog != last.get("prolog", {}):  # it has found something since, and written a report of its own
            last |= {"prolog": prolog, "sent": None, "kept": {**last.get("kept", {}), **prolog.get("found", {})}}
        return last

    def _publish(self, results: dict[str, Result], at: int, last: dict[str, Any]) -> None:
        seen = last.get("seen")
        for line in changes(seen or {}, results):
            self.log(line)
        report = Report(at=at, results=results)
        last["seen"] = gists(results)
        if last["seen"] != seen:
            last["changed_at"] = report.at
        if self._is_due(report, last):
            problem = self._send(report)
            if problem is None:
                last |= {"sent": last["seen"], "sent_at": report.at}
            elif problem != last.get("problem"):
                self.log(f"cannot write the report to Slurm: {problem}")
            last["problem"] = problem
        state.remember(self.local.node, state.LAST, last)

    def _is_due(self, report: Report, last: dict[str, Any]) -> bool:
        if last.get("sent") != last["seen"]:
            return True
        at, changed = last["sent_at"], last["changed_at"]
        # A clock that was set back must not silence the node.
        return not 0 <= report.at - at < self._refresh_seconds(report) or 0 <= report.at - changed <= SETTLE_SECONDS

    def _refresh_seconds(self, report: Report) -> float:
        if any(result.status is not Status.OK for result in report.results.values()):
            return REFRESH_SECONDS
        return WELL_REFRESH_SECONDS * (0.9 + 0.2 * zlib.crc32(self.local.node.name.encode()) / 2**32)

    def _send(self, report: Report) -> str | None:
        """Write the comment. Returns what is in the way."""
        slurm, name = Slurm(runner=self.runner, timeout=ASK_SECONDS), self.local.node.name
        try:
            record = slurm.node(name)
        except SlurmError as error:
            return str(error)
        if record is None:
            return "it has no record of this node"
        updated = slurm.update(name, comment=encode(replace(report, note=note_of(record.comment))))
        return None if updated.ok else updated.message


def metrics(results: Mapping[str, Result], at: float) -> str:
    """All metrics of one run, for Prometheus. `at`: seconds since 1970.

    `check_status` is 1 for the status that the check has and 0 for the others, so that an alert can name one.
    """
    series: dict[str, dict[str, float]] = {"last_run_timestamp_seconds": {"": float(int(at))}}
    for name, result in sorted(results.items()):
        series.setdefault("check_seconds", {})[f'{{check="{name}"}}'] = round(result.seconds, 4)
        for status in Status:
            labels = f'{{check="{name}",status="{status.value}"}}'
            series.setdefault("check_status", {})[labels] = float(result.status is status)
        for given, value in result.values.items():
            metric, brace, labels = given.partition("{")
            series.setdefault(metric, {})[brace + labels] = value
    lines = []
    for metric in sorted(series):
        lines.append(f"# TYPE {NAME_PREFIX}{metric} gauge")
        lines += [f"{NAME_PREFIX}{metric}{labels} {value:.16g}" for labels, value in series[metric].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Entry point."""
    prepare_environment()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    log = Log("health", open_pod_log())
    local = find_local(pod_environment())
    with state.only_me(local.node, "periodic") as alone:
        if alone:
            Periodic(local=local, checks={**find_checks(local.node), **local.programs}, log=log, runner=run).run()
    return 0
