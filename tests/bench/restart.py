"""How long a long queue stands still when slurmctld ends and starts: from its start until it starts a job."""

from __future__ import annotations

import time

from tests.bench.figures import Bench
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until

VERSION = "24.11"
NODES = [f"default-{number}" for number in range(4)]
STARTS = "/tmp/starts"
"""On each node: when a job began."""

ARRAYS, TASKS = 10, 1000
JOBS = ARRAYS * TASKS

SUBMIT = f"""
set -e; cd /tmp
for array in $(seq {ARRAYS}); do
    number=$(sbatch --uid=nobody --parsable --hold --mem=1 --array=0-{TASKS - 1} --output=/dev/null \\
        --wrap 'date +%s.%N >> {STARTS}; sleep 2')
    seq -f "update jobid=${{number}}_%g nice=1" 0 {TASKS - 1}
    echo "release $number"
done > commands
scontrol < commands
"""
"""Held tasks of arrays, each changed a little, and then released: so each has a record of its own, as jobs have that
came one by one."""

PAUSE_SECONDS = 1.0
"""Between slurmctld's end and its start."""


def restart(bench: Bench) -> None:
    """Jobs run all the time, and 10,000 wait; slurmctld is ended, as with its pod, and started again.

    One that is killed says nothing here: its nodes are full of jobs that had ended, of which it knows nothing until
    they register again (docs/availability.md).
    """
    config = accounting_config(VERSION, f"MaxJobCount={2 * JOBS}\n")
    with AccountingSandbox(VERSION, config=config, workers=len(NODES)) as sandbox:
        bench.say(f"{JOBS:,} jobs are made")
        done = sandbox.run(SUBMIT, timeout=600)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: len(_starts(sandbox)) > 10, sandbox.logs, 60)
        name = f"slurmctld ended with {JOBS:,} jobs queued: its start -> it starts a job"
        row = bench.measure(name, lambda _: _once(sandbox), runs=5, goal=5)
        left = sandbox.run("squeue --noheader --array --states=pending | wc -l").stdout
        row.note = f"{int(left):,} still waited at the end"


def _starts(sandbox: AccountingSandbox) -> list[float]:
    printed = [sandbox.run(["cat", STARTS], pod=name).stdout for name in NODES]
    return sorted(float(line) for text in printed for line in text.split())


def _once(sandbox: AccountingSandbox) -> float:
    time.sleep(5)  # jobs begin and end
    sandbox.run(["pkill", "-TERM", "--exact", "slurmctld"])
    wait_until(lambda: sandbox.run(["pgrep", "--exact", "slurmctld"]).returncode != 0, "slurmctld to be gone", 60)
    time.sleep(PAUSE_SECONDS)
    begin = time.time()
    sandbox.controller.start_program("slurmctld")
    wait_until(lambda: _starts(sandbox)[-1] > begin, sandbox.logs, 120)
    return next(at for at in _starts(sandbox) if at > begin) - begin
