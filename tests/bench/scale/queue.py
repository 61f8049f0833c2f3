"""What slurmctld's scheduler takes with a long queue, by its own statistics."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tests.bench.row import Measuring
from tests.bench.scale.sandbox import ScaleSandbox
from tests.slurm.pod import wait_until

PENDING = 500
WINDOW_SECONDS = 12
"""So long each sample's statistics are gathered: two cycles of backfill (`bf_interval=5`) or more."""

SUBMIT = (
    "seq {jobs} | xargs -P4 -I@ sh -c "
    "'sbatch --quiet --output=/dev/null --nodes=$((@ % {most} + 1)) --time=$((@ % 240 + 5)) --wrap true'"
)
"""Jobs of all sizes up to half of the nodes, and of all lengths up to four hours."""


def scheduling(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    """All nodes are taken by one job, and many others wait behind it."""
    sandbox.await_idle(120)
    sandbox.as_user(f"sbatch --quiet --nodes={nodes} --exclusive --time=60 --output=/dev/null --wrap 'sleep 3600'")
    wait_until(lambda: _count(sandbox, "running") == 1, "the job that takes all nodes to run", 60)
    bench.say(f"{PENDING} jobs are submitted")
    sandbox.as_user(SUBMIT.format(jobs=PENDING, most=max(1, nodes // 2)))
    assert _count(sandbox, "pending") == PENDING
    process = sandbox.slurmctld
    found: dict[str, list[float]] = {}
    for _ in range(bench.times(3)):
        sandbox.run(["sdiag", "--reset"])
        before = _cpu_seconds(process)
        time.sleep(WINDOW_SECONDS)
        used = (_cpu_seconds(process) - before) * 60 / WINDOW_SECONDS
        figures = {**cycles(sandbox.run(["sdiag"]).stdout), "CPU": used}
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
    for name in ("main", "main, longest", "backfill", "backfill, longest"):
        row = f"scheduling cycle with {PENDING} jobs pending: {name}"
        if samples := found.get(name):
            bench.take(row, samples, unit="ms", nodes=nodes)
    bench.take(f"slurmctld: CPU seconds a minute with {PENDING} jobs pending", found["CPU"], nodes=nodes)
    sandbox.run("scancel --user=nobody --state=pending; scancel --user=nobody")
    sandbox.await_idle(180)


def cycles(sdiag: str) -> dict[str, float]:
    """Mean and longest cycle in ms, of the main scheduler and of backfill, where `sdiag` had any."""
    found = {}
    for title, name in (("Main schedule statistics", "main"), ("Backfilling stats", "backfill")):
        lines = sdiag.partition(title)[2].partition("\n\n")[0]
        values = dict(re.findall(r"^\s*([A-Za-z ]+?):\s+(\d+)\s*$", lines, re.MULTILINE))
        if "Mean cycle" in values:
            found[name] = int(values["Mean cycle"]) / 1000
            found[f"{name}, longest"] = int(values["Max cycle"]) / 1000
    return found


def _count(sandbox: ScaleSandbox, state: str) -> int:
    return len(sandbox.run(["squeue", "--noheader", f"--states={state}", "--format=%A"]).stdout.split())


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
