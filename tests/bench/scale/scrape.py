"""What the figures of 1,000 nodes and 10,000 jobs cost: those who read them, slurmctld, and the exporter.

Behind each node is a slurmd, as in `scale`, and the stack has accounting. The jobs are held tasks of arrays, each
changed a little, so that each has a record; slurmctld's scheduler has nothing to do with them.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from images.common.slurm_records import Columns
from images.exporter.records import JOB_FIELDS, SHORT_FIELDS
from images.exporter.sources import JOBS
from slurm.monitoring import PATHS
from tests.bench.row import Measuring
from tests.bench.scale.part import lacking, nodes_wanted
from tests.bench.scale.sandbox import ScaleSandbox, ask, say_well
from tests.slurm.pod import Pod, wait_until

ARRAYS, TASKS = 10, 1000
ROUND_SECONDS = 5
"""The exporter makes rounds oftener than in Kubernetes: what one costs slurmctld is little beside what else it does."""
WINDOW_SECONDS = 80
"""Two of slurmctld's looks at all nodes, one each SlurmdTimeout / 3: each window has as many of them."""
READINGS = 10
"""Of an endpoint of slurmctld, for one figure of its CPU, which the kernel counts in steps of 0.01 s."""

MAKE = f"""
set -e; cd /tmp
for array in $(seq {ARRAYS}); do
    number=$(sbatch --uid=games --parsable --hold --array=0-{TASKS - 1} --output=/dev/null --wrap true)
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

READ_SLURMCTLD = """
import sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    begin = time.monotonic()
    text = urllib.request.urlopen("http://controller-0:6817" + sys.argv[1], timeout=60).read()
    print(time.monotonic() - begin, len(text))
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
    """With the exporter's program, which reads all once in a round; and slurmctld's own endpoints, where it has any."""
    nodes = max(nodes_wanted())
    if missing := lacking(nodes):
        bench.say(f"left out: {missing}")
        bench.left_out.append(f"figures of {nodes} slurmd ({missing})")
        return
    with _filled(bench, nodes, "24.11") as sandbox:
        _exporter(bench, sandbox, nodes)
        _page(bench, sandbox, nodes)
        bench.say("all is taken away")
    with _filled(bench, nodes, "26.05") as sandbox:
        _endpoints(bench, sandbox, nodes)
        bench.say("all is taken away")


@contextmanager
def _filled(bench: Measuring, nodes: int, version: str) -> Iterator[ScaleSandbox]:
    """A cluster with all nodes and jobs, which has nothing left to do for them."""
    bench.say(f"Slurm {version}: {nodes} slurmd are started")
    # Each array counts itself, too, and 10,000 is what slurmctld allows by default.
    most = {"slurm.settings.MaxJobCount": 2 * ARRAYS * TASKS}
    changes = {"slurm.version": version, "monitoring": {"enabled": True}, **most}
    with ScaleSandbox(nodes, changes) as sandbox:
        sandbox.start_nodes()
        sandbox.await_idle(300)
        say_well(sandbox, nodes)
        bench.say(f"{ARRAYS * TASKS} jobs are made")
        ask(sandbox, MAKE, timeout=300)
        assert int(ask(sandbox, "scontrol show jobs --oneliner | wc -l")) == ARRAYS * TASKS
        empty = re.compile(r"DBD Agent queue size:\s+0\n")
        wait_until(lambda: bool(empty.search(ask(sandbox, "sdiag"))), lambda: ask(sandbox, "sdiag"), 300)
        time.sleep(WINDOW_SECONDS / 2)  # slurmctld saves what it has got
        yield sandbox
        sandbox.await_idle(1)  # nobody was lost meanwhile


def _exporter(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    idle = [_spent(sandbox, {"slurmctld": sandbox.controller}) for _ in range(bench.times(3))]
    pod = sandbox.add_pod("exporter", "exporter", {sandbox.config_directory: "/config/slurm"})
    env = {"SLURM_CONF": "/config/slurm/slurm.conf", "AGENT_URL": "http://controller-0:8817"}
    more = {"SLURMS_OWN": "yes", "BY_PERSON": "yes", "INTERVAL_SECONDS": str(ROUND_SECONDS)}
    pod.start_program("exporter", {**env, **more})
    wanted = f"{ARRAYS * TASKS}-{nodes}"
    wait_until(lambda: pod.run(["python3", "-c", READ]).stdout.endswith(f" {wanted}\n"), sandbox.logs, 60)
    _read(bench, pod, nodes)
    both = {"slurmctld": sandbox.controller, "exporter": pod}
    busy = [_spent(sandbox, both) for _ in range(bench.times(3))]
    rounds = WINDOW_SECONDS / ROUND_SECONDS
    base = statistics.mean(one["slurmctld"] for one in idle)
    cpu = "CPU seconds a round of the exporter"
    without = ", ".join(f"{one['slurmctld'] / rounds:.3f}" for one in idle)
    note = f"{base / rounds:.3f} s in the same time without an exporter are taken off (mean of {without})"
    bench.take(f"slurmctld: {cpu}", [(one["slurmctld"] - base) / rounds for one in busy], nodes=nodes, note=note)
    bench.take(f"exporter: {cpu}", [one["exporter"] / rounds for one in busy], nodes=nodes)
    status = next(Path(f"/proc/{pid}/status") for pid in _processes(pod, "exporter")).read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    bench.take("exporter: most memory that it had", [peak / 1024], unit="MiB", nodes=nodes)
    squeue = [*JOBS, Columns(JOB_FIELDS, SHORT_FIELDS).option]
    resident = int(pod.run(["python3", "-c", MEMORY, *squeue], env=env).stdout) / 1024
    bench.take("exporter: most memory that its squeue has", [resident], unit="MiB", nodes=nodes)


def _endpoints(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    """What Prometheus reads from slurmctld of 26.05, from beside it, one path after the other."""
    base = _spent(sandbox, {"slurmctld": sandbox.controller})["slurmctld"] / WINDOW_SECONDS
    seconds: dict[str, list[float]] = {path: [] for path in PATHS}
    cpu: dict[str, list[float]] = {path: [] for path in PATHS}
    sizes = {}
    for path in PATHS * bench.times(5):
        before, began = cpu_seconds(sandbox.controller, "slurmctld"), time.monotonic()
        lines = ask(sandbox, f"python3 -c '{READ_SLURMCTLD}' {path} {READINGS}").splitlines()
        used = cpu_seconds(sandbox.controller, "slurmctld") - before - base * (time.monotonic() - began)
        seconds[path] += [float(line.split()[0]) for line in lines]
        cpu[path].append(used / READINGS)
        sizes[path] = int(lines[-1].split()[1])
    for path in PATHS:
        name, note = f"slurmctld 26.05: {path} is read", f"{sizes[path] / 1e6:.2f} MB"
        bench.take(name, seconds[path], nodes=nodes, note=note)
    whole = [sum(times) for times in zip(*seconds.values(), strict=True)]
    bench.take("slurmctld 26.05: all four together", whole, goal=0.5, nodes=nodes)
    note = ", ".join(f"{path.rpartition('/')[2]} {statistics.median(samples):.4f}" for path, samples in cpu.items())
    note += f"; {base:.3f} s a second without readers are taken off"
    spent = [sum(samples) for samples in zip(*cpu.values(), strict=True)]
    bench.take("slurmctld 26.05: CPU seconds for all four", spent, nodes=nodes, note=note)


def _read(bench: Measuring, pod: Pod, nodes: int) -> None:
    def once(_: int) -> float:
        seconds, size, _wanted = pod.run(["python3", "-c", READ]).stdout.split()
        sizes.append(int(size))
        return float(seconds)

    sizes: list[int] = []
    row = bench.measure("figures of 10,000 jobs are read from the exporter", once, runs=7, goal=0.5, nodes=nodes)
    row.note = f"{max(sizes) / 1e6:.1f} MB"


def _page(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    """As root sees it, behind the proxy with TLS."""
    pod = sandbox.add_pod("rest", "rest", {sandbox.config_directory: "/config/slurm"}, munged=False)
    pod.start_program("dashboard", {})
    token = ask(sandbox, "scontrol token username=root lifespan=600").strip().removeprefix("SLURM_JWT=")
    asking = ["python3", "-c", PAGE, token]
    wait_until(lambda: pod.run(asking).returncode == 0, lambda: f"{pod.run(asking).stderr}{sandbox.logs()}", 60)
    name, before = "the dashboard's page with 10,000 jobs", cpu_seconds(pod, "dashboard")
    row = bench.measure(name, lambda _: float(pod.run(asking).stdout.split()[0]), runs=7, goal=0.3, nodes=nodes)
    used = (cpu_seconds(pod, "dashboard") - before) / len(row.samples)
    bench.take("the same page: CPU seconds of the dashboard", [used], nodes=nodes)


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


def _spent(sandbox: ScaleSandbox, programs: Mapping[str, Pod]) -> dict[str, float]:
    """CPU seconds of programs, with the commands that they have run, in a window."""
    before = {name: cpu_seconds(pod, name) for name, pod in programs.items()}
    time.sleep(WINDOW_SECONDS)
    return {name: cpu_seconds(pod, name) - before[name] for name, pod in programs.items()}


def cpu_seconds(pod: Pod, name: str) -> float:
    """CPU seconds of a program, with the commands that it has run."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _processes(pod, name))
    return sum(sum(map(int, fields[11:15])) for fields in stats) / os.sysconf("SC_CLK_TCK")
