"""What the exporter's rounds cost slurmctld, with 1,000 nodes and 10,000 jobs.

Behind each node is a slurmd, as in `scale`, and the stack has accounting. slurmctld's scheduler has nothing to do with
the jobs: they are held.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path

from tests.bench.figures import Bench
from tests.bench.scale.sandbox import JOBS, NODES, ScaleSandbox, ask, held_jobs, lacking
from tests.slurm.pod import wait_until

ROUND_SECONDS = 5
"""The exporter makes rounds oftener than in Kubernetes: what one costs slurmctld is little beside what else it does."""
WINDOW_SECONDS = 80
"""Two of slurmctld's looks at all nodes, one each SlurmdTimeout / 3: each window has as many of them."""

READ = """
import urllib.request
text = urllib.request.urlopen("http://127.0.0.1:9341/metrics", timeout=60).read().decode()
wanted = ("slurm_jobs_pending ", "slurm_nodes_idle ")
print(*(line.split(" ")[1] for line in text.splitlines() if line.startswith(wanted)))
"""


def scrape(bench: Bench) -> None:
    """With the exporter's program, which reads all once in a round."""
    if missing := lacking():
        bench.leave_out(f"figures of {NODES} slurmd ({missing})")
        return
    bench.say(f"{NODES} slurmd are started")
    # Each array counts itself, too, and 10,000 is what slurmctld allows by default.
    with ScaleSandbox(NODES, {"monitoring": {"enabled": True}, "slurm.settings.MaxJobCount": 2 * JOBS}) as sandbox:
        sandbox.start_nodes()
        sandbox.await_idle(300)
        bench.say(f"{JOBS} jobs are made")
        ask(sandbox, held_jobs("true"), timeout=300)
        assert int(ask(sandbox, "scontrol show jobs --oneliner | wc -l")) == JOBS
        empty = re.compile(r"DBD Agent queue size:\s+0\n")
        wait_until(lambda: bool(empty.search(ask(sandbox, "sdiag"))), lambda: ask(sandbox, "sdiag"), 300)
        time.sleep(WINDOW_SECONDS / 2)  # slurmctld saves what it has got
        idle = [_spent(sandbox) for _ in range(bench.times(3))]
        _start_exporter(sandbox)
        rounds, base = WINDOW_SECONDS / ROUND_SECONDS, statistics.mean(idle)
        spent = [(_spent(sandbox) - base) / rounds for _ in range(bench.times(3))]
        note = f"{base / rounds:.3f} s in the same time without an exporter are taken off"
        bench.take("slurmctld: CPU seconds a round of the exporter", spent, nodes=NODES, note=note)
        sandbox.await_idle(1)  # nobody was lost meanwhile


def _start_exporter(sandbox: ScaleSandbox) -> None:
    pod = sandbox.add_pod("exporter", "exporter", {sandbox.config_directory: "/config/slurm"})
    env = {"SLURM_CONF": "/config/slurm/slurm.conf", "AGENT_URL": "http://controller-0:8817"}
    more = {"BY_PERSON": "yes", "INTERVAL_SECONDS": str(ROUND_SECONDS)}
    pod.start_program("exporter", {**env, **more})
    wanted = f"{JOBS} {NODES}\n"
    wait_until(lambda: pod.run(["python3", "-c", READ]).stdout == wanted, sandbox.logs, 60)


def _spent(sandbox: ScaleSandbox) -> float:
    """CPU seconds of slurmctld in a window."""
    stat = Path(f"/proc/{sandbox.slurmctld}/stat")

    def ticks() -> int:
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:15]))

    before = ticks()
    time.sleep(WINDOW_SECONDS)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK")
