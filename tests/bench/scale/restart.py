"""How long a long queue stands still when slurmctld ends and starts: from its start until it starts a job."""

from __future__ import annotations

import time

from tests.bench.figures import Bench
from tests.bench.scale.sandbox import JOBS, ScaleSandbox, ask, many_jobs
from tests.slurm.pod import wait_until

NODES = 4
STARTS = "/tmp/starts"
PAUSE_SECONDS = 1.0
"""Between slurmctld's end and its start."""


def restart(bench: Bench) -> None:
    """Jobs run all the time, and 10,000 wait; slurmctld is ended, as with its pod, and started again."""
    with ScaleSandbox(NODES, {"slurm.settings.MaxJobCount": 2 * JOBS}) as sandbox:
        sandbox.start_nodes()
        sandbox.await_idle(120)
        (sandbox.machine.root / STARTS.lstrip("/")).write_text("")
        (sandbox.machine.root / STARTS.lstrip("/")).chmod(0o666)
        bench.say(f"{JOBS:,} jobs are made")
        ask(sandbox, many_jobs(f"date +%s.%N >> {STARTS}; sleep 2", "--mem=1"), timeout=600)
        wait_until(lambda: len(_starts(sandbox)) > 10, lambda: ask(sandbox, "squeue | head; sinfo"), 60)
        name = f"slurmctld ended with {JOBS:,} jobs queued: its start -> it starts a job"
        row = bench.measure(name, lambda _: _once(sandbox), runs=5, goal=5)
        row.note = (
            f"{int(ask(sandbox, 'squeue --noheader --array --states=pending | wc -l')):,} still waited at the end"
        )


def _starts(sandbox: ScaleSandbox) -> list[float]:
    lines = (sandbox.machine.root / STARTS.lstrip("/")).read_text().splitlines()
    return sorted(float(line) for line in lines)


def _once(sandbox: ScaleSandbox) -> float:
    time.sleep(5)  # jobs begin and end
    sandbox.end_slurmctld("TERM")
    time.sleep(PAUSE_SECONDS)
    begin = time.time()
    sandbox.start_slurmctld()
    wait_until(lambda: _starts(sandbox)[-1] > begin, lambda: ask(sandbox, "squeue | head; sinfo"), 120)
    return next(at for at in _starts(sandbox) if at > begin) - begin
