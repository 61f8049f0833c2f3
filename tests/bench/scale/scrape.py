"""What the figures of 1,000 nodes and 10,000 jobs cost: those who read them, slurmctld, and the exporter.

The nodes are records without a slurmd, as in `watching`. The jobs are held tasks of arrays, each changed a little, so
that each has a record; slurmctld's scheduler has nothing to do with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from images.common.slurm_records import Columns
from images.exporter.records import JOB_FIELDS, SHORT_FIELDS
from images.exporter.sources import JOBS
from tests.bench.row import Measuring
from tests.bench.scale.watching import RecordSandbox
from tests.slurm.pod import Pod, wait_until

NODES, ARRAYS, TASKS = 1000, 10, 1000
ROUND_SECONDS = 5
"""The exporter makes rounds oftener than in Kubernetes: what one costs slurmctld is little beside what else it does."""
WINDOW_SECONDS = 60

MAKE = f"""
set -e; cd /tmp
for array in $(seq {ARRAYS}); do
    number=$(sbatch --uid=nobody --parsable --hold --array=0-{TASKS - 1} --output=/dev/null --wrap true)
    seq -f "update jobid=${{number}}_%g nice=1" 0 {TASKS - 1}
done | scontrol
"""

READ = """
import sys, time, urllib.request
begin = time.monotonic()
text = urllib.request.urlopen("http://127.0.0.1:9341/metrics", timeout=60).read().decode()
seconds = time.monotonic() - begin
lines = [line.split(" ")[1] for line in text.splitlines() if line.startswith(("slurm_jobs_pending ", "slurm_nodes "))]
print(seconds, len(text), "-".join(lines))
"""

MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

PAGE = """
import socket, sys, time
begin = time.monotonic()
client = socket.socket(socket.AF_UNIX)
client.connect("/run/slurmstack/dashboard.sock")
cookie = "__Secure-slurm-token=" + sys.argv[1]
client.sendall(f"GET /dashboard/ HTTP/1.0\\r\\nHost: rest\\r\\nCookie: {cookie}\\r\\n\\r\\n".encode())
answer = client.makefile("rb").read()
assert answer.startswith(b"HTTP/1.0 200") and b"default-7" in answer, answer[:2000]
print(time.monotonic() - begin, len(answer))
"""


def scrape(bench: Measuring) -> None:
    """With the exporter's program, which reads all once in a round."""
    bench.say(f"{NODES} nodes and {ARRAYS * TASKS} jobs are made")
    # Each array counts itself, too, and 10,000 is what slurmctld allows by default.
    with RecordSandbox(NODES, MaxJobCount=2 * ARRAYS * TASKS) as sandbox:
        sandbox.ask(MAKE)
        assert len(sandbox.ask("squeue --noheader").splitlines()) == ARRAYS * TASKS
        time.sleep(WINDOW_SECONDS / 2)  # slurmctld saves what it has got
        idle = [_spent(sandbox, {"slurmctld": sandbox.controller}) for _ in range(bench.times(3))]
        pod = sandbox.add_pod("exporter", "exporter", {sandbox.config_directory: "/config/slurm"})
        env = {"SLURM_CONF": "/config/slurm/slurm.conf", "AGENT_URL": "http://controller-0:8817"}
        more = {"SLURMS_OWN": "yes", "BY_PERSON": "yes", "INTERVAL_SECONDS": str(ROUND_SECONDS)}
        pod.start_program("exporter", {**env, **more})
        wanted = f"{ARRAYS * TASKS}-{NODES}"
        wait_until(lambda: pod.run(["python3", "-c", READ]).stdout.endswith(f" {wanted}\n"), sandbox.logs, 60)
        _read(bench, pod)
        both = {"slurmctld": sandbox.controller, "exporter": pod}
        busy = [_spent(sandbox, both) for _ in range(bench.times(3))]
        rounds = WINDOW_SECONDS / ROUND_SECONDS
        base = sum(one["slurmctld"] for one in idle) / len(idle)
        cpu = "CPU seconds a round of the exporter"
        note = f"{base / rounds:.2f} s in the same time without an exporter are taken off"
        bench.take(f"slurmctld: {cpu}", [(one["slurmctld"] - base) / rounds for one in busy], nodes=NODES, note=note)
        bench.take(f"exporter: {cpu}", [one["exporter"] / rounds for one in busy], nodes=NODES)
        status = next(Path(f"/proc/{pid}/status") for pid in _processes(pod, "exporter")).read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        bench.take("exporter: most memory that it had", [peak / 1024], unit="MiB", nodes=NODES)
        squeue = [*JOBS, Columns(JOB_FIELDS, SHORT_FIELDS).option]
        resident = int(pod.run(["python3", "-c", MEMORY, *squeue], env=env).stdout) / 1024
        bench.take("exporter: most memory that its squeue has", [resident], unit="MiB", nodes=NODES)
        _page(bench, sandbox)


def _read(bench: Measuring, pod: Pod) -> None:
    def once(_: int) -> float:
        seconds, size, _wanted = pod.run(["python3", "-c", READ]).stdout.split()
        sizes.append(int(size))
        return float(seconds)

    sizes: list[int] = []
    row = bench.measure("figures of 10,000 jobs are read from the exporter", once, runs=7, goal=0.5, nodes=NODES)
    row.note = f"{max(sizes) / 1e6:.1f} MB"


def _page(bench: Measuring, sandbox: RecordSandbox) -> None:
    """As root sees it, behind the proxy with TLS."""
    pod = sandbox.add_pod("rest", "rest", {sandbox.config_directory: "/config/slurm"}, munged=False)
    pod.start_program("dashboard", {})
    token = sandbox.ask("scontrol token username=root lifespan=600").strip().removeprefix("SLURM_JWT=")
    asking = ["python3", "-c", PAGE, token]
    wait_until(lambda: pod.run(asking).returncode == 0, lambda: f"{pod.run(asking).stderr}{sandbox.logs()}", 60)
    name, before = "the dashboard's page with 10,000 jobs", _used(pod, "dashboard")
    row = bench.measure(name, lambda _: float(pod.run(asking).stdout.split()[0]), runs=7, goal=0.3, nodes=NODES)
    used = (_used(pod, "dashboard") - before) / len(row.samples)
    bench.take("the same page: CPU seconds of the dashboard", [used], nodes=NODES)


def _processes(pod: Pod, name: str) -> list[str]:
    """Processes of a program in a pod, as seen from outside."""
    inside = Path(f"/proc/{pod.pid}/ns/pid").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")[:3]
            if (process / "ns/pid").readlink() == inside and any(Path(w.decode()).name == name for w in words):
                found.append(process.name)
        except (OSError, UnicodeDecodeError):
            continue
    return found


def _spent(sandbox: RecordSandbox, programs: Mapping[str, Pod]) -> dict[str, float]:
    """CPU seconds of programs, with the commands that they have run, in a window."""
    before = {name: _used(pod, name) for name, pod in programs.items()}
    time.sleep(WINDOW_SECONDS)
    return {name: _used(pod, name) - before[name] for name, pod in programs.items()}


def _used(pod: Pod, name: str) -> float:
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _processes(pod, name))
    return sum(sum(map(int, fields[11:15])) for fields in stats) / os.sysconf("SC_CLK_TCK")
