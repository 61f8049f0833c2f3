"""How long a long queue stands still when slurmctld ends and starts: from its start until it starts a job."""

from __future__ import annotations

import time

from tests.bench.row import Measuring
from tests.bench.scale.sandbox import ScaleSandbox, ask
from tests.slurm.pod import wait_until

NODES = 4
ARRAYS, TASKS = 10, 1000
STARTS = "/tmp/starts"
PAUSE_SECONDS = 1.0
"""Between slurmctld's end and its start."""

MAKE = f"""
set -e; cd /tmp
for array in $(seq {ARRAYS}); do
    number=$(sbatch --uid=nobody --parsable --hold --mem=1 --array=0-{TASKS - 1} --output=/dev/null \\
        --wrap 'date +%s.%N >> {STARTS}; sleep 2')
    seq -f "update jobid=${{number}}_%g nice=1" 0 {TASKS - 1}
    echo "release ${{number}}"
done > commands
scontrol < commands
"""
"""Held tasks of arrays, each changed a little: so each has a record of its own, as jobs have that came one by one."""


def restart(bench: Measuring) -> None:
    """Jobs run all the time, and 10,000 wait; slurmctld is ended, as with its pod, and started again.

    One that is killed says nothing here: its nodes are full of jobs that had ended, of which it knows nothing until
    they register again (docs/availability.md).
    """
    most = {"slurm.settings.MaxJobCount": 2 * ARRAYS * TASKS}
    with ScaleSandbox(NODES, most) as sandbox:
        sandbox.start_nodes()
        sandbox.await_idle(120)
        (sandbox.machine.root / STARTS.lstrip("/")).write_text("")
        (sandbox.machine.root / STARTS.lstrip("/")).chmod(0o666)
        bench.say(f"{ARRAYS * TASKS:,} jobs are made")
        ask(sandbox, MAKE, timeout=600)
        wait_until(lambda: len(_starts(sandbox)) > 10, lambda: ask(sandbox, "squeue | head; sinfo"), 60)
        samples: dict[str, list[float]] = {"answers": [], "starts a job": []}
        for _ in range(bench.times(5)):
            time.sleep(5)  # jobs begin and end
            for name, seconds in _once(sandbox).items():
                samples[name].append(seconds)
        waiting = int(ask(sandbox, "squeue --noheader --array --states=pending | wc -l"))
        note = f"{waiting:,} jobs still waited at the end"
        row = f"slurmctld ended with {ARRAYS * TASKS:,} jobs queued: its start ->"
        bench.take(f"{row} it answers", samples["answers"], note=note)
        bench.take(f"{row} it starts a job", samples["starts a job"], goal=5, note=note)


def _starts(sandbox: ScaleSandbox) -> list[float]:
    lines = (sandbox.machine.root / STARTS.lstrip("/")).read_text().splitlines()
    return sorted(float(line) for line in lines)


def _once(sandbox: ScaleSandbox) -> dict[str, float]:
    sandbox.run(["pkill", "-TERM", "--exact", "slurmctld"])
    wait_until(lambda: sandbox.run(["pgrep", "--exact", "slurmctld"]).returncode != 0, "slurmctld to be gone", 60)
    time.sleep(PAUSE_SECONDS)
    begin = time.time()
    sandbox.start_slurmctld()
    answers = time.time() - begin
    wait_until(lambda: _starts(sandbox)[-1] > begin, lambda: ask(sandbox, "squeue | head; sinfo"), 120)
    return {"answers": answers, "starts a job": next(at for at in _starts(sandbox) if at > begin) - begin}
