"""`make bench`: how long the things take that a user waits for, on the local cluster with images present.

Each figure is measured several times in one run; the table has the median and the spread (lowest to highest). A goal
that is missed is marked, never hidden. Needs the local cluster (`make up`); it works in a namespace of its own.
"""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from config import load_config
from local import cluster as local_cluster
from slurm.policy import policy_document
from tests.bench_accounting import ACCOUNTS, JOBS, REAL_JOBS, USERS, apply_policy, make_records, many_users, todays_jobs
from tests.bench_health import chain, give_gpus, lost_gpu, lost_machine, quiet_minute
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.stacks import ROOT, dev, with_change, with_pools

RESULTS = ROOT / "bench-results"
NAMESPACE = "bench"

PARTS = [
    "stack",
    "unchanged",
    "scaling",
    "setting",
    "controller",
    "start",
    "array",
    "rest",
    "policy",
    "records",
    "health",
    "render",
]
TASKS = 1000
"""Tasks of the large array job."""


@dataclass
class Figure:
    """One line of the table; times in seconds."""

    what: str
    goal: float
    times: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def cells(self) -> list[str]:
        spread = f"{min(self.times):.2f}-{max(self.times):.2f}"
        met = "yes" if self.median <= self.goal else f"no, by {self.median - self.goal:.2f} s"
        return [self.what, f"{self.median:.2f}", spread, str(len(self.times)), f"{self.goal:g}", met]


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


class Bench:
    """All measurements, in an order in which each leaves the cluster as the next one expects it."""

    def __init__(self, directory: Path) -> None:
        sections: dict[str, Any] = {**dev(), "cluster": {"namespace": NAMESPACE}}
        public_key = make_key(directory / "key")
        sections["users"] = {"alice": {"uid": 10001, "ssh_authorized_keys": [public_key]}}
        self.slurm = SlurmOnKubernetes(engine="kubectl", directory=directory, sections=sections)
        self.figures: list[Figure] = []

    def run(self, parts: list[str]) -> None:
        """Measure the named parts; the stack itself is always applied, since the others need it."""
        measurements = {
            "stack": self._whole_stack,
            "unchanged": self._unchanged,
            "scaling": self._scaling,
            "setting": self._setting,
            "controller": self._controller,
            "start": self._start_of_a_job,
            "array": self._array,
            "rest": self._rest,
            "policy": self._policy,
            "records": self._records,
            "health": self._health,
        }
        if "stack" not in parts:
            self.slurm.up()
            self._srun()
        for name, measure in measurements.items():
            if name in parts:
                measure()
        self.destroy()

    def destroy(self) -> None:
        slurmstack("destroy", "--yes", "--kill-jobs", "--engine", "kubectl", "--config", str(self.slurm.file))

    def _figure(self, what: str, goal: float, repeat: int, action: Callable[[int], float], note: str = "") -> None:
        figure = Figure(what, goal, note=note)
        for number in range(repeat):
            figure.times.append(action(number))
            print(f"{what}: {figure.times[-1]:.2f} s", file=sys.stderr, flush=True)
        self.figures.append(figure)

    def _srun(self, nodes: int = 2) -> None:
        def try_it() -> bool:
            done = self._as_alice(f"srun -N{nodes} hostname", check=False)
            return len(set(done.split())) == nodes

        wait_until(try_it, f"srun on {nodes} nodes", timeout=180)

    def _as_alice(self, command: str, *, check: bool = True) -> str:
        """Without ssh, whose own time is not what is measured here."""
        shell = (
            "chroot",
            "--userspec=10001:10001",
            "/jail",
            "env",
            "-i",
            "HOME=/home/alice",
            "/bin/bash",
            "-lc",
            f"cd; {command}",
        )
        return self.slurm.exec("login-0", *shell, container="sshd", check=check)

    def _whole_stack(self) -> None:
        def once(number: int) -> float:
            if number:
                self.destroy()
            started = time.monotonic()
            self.slurm.up()
            self._srun()
            return time.monotonic() - started

        self._figure("apply of the whole stack -> first srun (first: empty jail is filled)", 30, 3, once)

    def _unchanged(self) -> None:
        self._figure("apply without a change", 5, 5, lambda _: timed(self.slurm.up))

    def _scaling(self) -> None:
        def once(_: int) -> float:
            self.slurm.sections = with_change(self.slurm.sections, "worker_nodes.default.size", 3)
            on_three = "[ $(srun --immediate=1 -N3 hostname 2>/dev/null | sort -u | wc -l) = 3 ]"
            taken = self._applied_until(lambda: self._as_alice(f"until {on_three}; do sleep 0.1; done"))
            self.slurm.change("worker_nodes.default.size", 2)
            self.slurm.await_idle("default-0", "default-1")
            return taken

        self._figure("size 2 -> 3: apply starts -> a job runs on the new node", 5, 5, once)

    def _applied_until(self, reached: Callable[[], object]) -> float:
        """Seconds from the start of an apply until something is reached, whether or not the apply has returned."""
        file = self.slurm.file
        command = [sys.executable, "-m", "cli.entry", "up", "--yes", "--engine", "kubectl", "--config", str(file)]
        started = time.monotonic()
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        reached()
        taken = time.monotonic() - started
        assert running.wait() == 0
        return taken

    def _setting(self) -> None:
        def once(number: int) -> float:
            self.slurm.sections = with_change(self.slurm.sections, "slurm.settings.MinJobAge", 310 + number)
            active = f"scontrol show config | grep -q 'MinJobAge .*= {310 + number} sec'"
            return self._applied_until(lambda: self.slurm.slurm(f"until {active}; do sleep 0.1; done"))

        self._figure("setting changed: apply starts -> active", 3, 5, once)

    def _controller(self) -> None:
        def once(_: int) -> float:
            started = time.monotonic()
            self.slurm.kubectl.run("delete", "pod", "controller-0", "-n", NAMESPACE, "--wait=false")
            uid = self.slurm.pod_uids()["controller-0"]
            wait_until(lambda: self.slurm.pod_uids().get("controller-0", uid) != uid, "another controller pod")
            wait_until(
                lambda: self._as_alice("sbatch --parsable --wrap true", check=False).strip(), "sbatch is accepted"
            )
            taken = time.monotonic() - started
            self.slurm.await_idle("default-0", "default-1")
            return taken

        self._figure("controller pod deleted -> sbatch accepted again", 5, 5, once)

    def _start_of_a_job(self) -> None:
        script = "a=$(date +%s.%N); b=$(srun -N1 date +%s.%N); echo $a $b"

        def once(_: int) -> float:
            submitted, started = self._as_alice(script).split()
            return float(started) - float(submitted)

        self._figure("submit (srun) -> start on an idle node", 0.2, 20, once)

    def _array(self) -> None:
        def once(_: int) -> float:
            started = time.monotonic()
            self._as_alice(f"sbatch --array=1-{TASKS} --output=/dev/null --wrap true")
            wait_until(lambda: not self.slurm.slurm("squeue --noheader").strip(), "the array is done", timeout=900)
            return time.monotonic() - started

        self._figure(f"{TASKS}-task array of `true` on two nodes of two slots", 50, 2, once)

    def _rest(self) -> None:
        self.slurm.change("rest", {"enabled": True})
        (secret,) = self.slurm.kubectl.items("secret", "rest-tls", "-n", NAMESPACE)
        authority = base64.b64decode(secret["data"]["ca.crt"]).decode()

        def once(connections: int) -> float:
            command = f"export \"$(scontrol token)\"; python3 - {SUBMISSIONS} {connections} <<'END'\n{REST_CLIENT}\nEND"
            taken = float(self._as_alice(f"cat > ca.pem <<'END'\n{authority}\nEND\n{command}"))
            wait_until(lambda: not self.slurm.slurm("squeue --noheader").strip(), "the jobs are done", timeout=300)
            return taken

        for connections in (1, 4, 16):
            what = f"{SUBMISSIONS} submissions through REST with one token, {connections} connections"
            self._figure(what, SUBMISSIONS / 50, 5, lambda _: once(connections))  # noqa: B023  used at once
            figure = self.figures[-1]
            figure.note = f"{SUBMISSIONS / figure.median:.0f} a second"

    def _policy(self) -> None:
        own, document = policy_document(load_config(self.slurm.sections)), many_users(self.slurm.sections)
        again = Figure("the same again, unchanged", 3)

        def once(_: int) -> float:
            taken = timed(lambda: apply_policy(self.slurm, document))
            again.times.append(timed(lambda: apply_policy(self.slurm, document)))
            apply_policy(self.slurm, own, prune=True)
            return taken

        self._figure(f"policy of {USERS} users in {ACCOUNTS} accounts from nothing", 20, 3, once)
        self.figures.append(again)

    def _records(self) -> None:
        make_records(self.slurm)
        note = f"{REAL_JOBS} real array tasks, their records copied in the database"
        for what, steps in ((f"sacct of a day with {JOBS} finished jobs", False), ("the same with their steps", True)):
            self._figure(what, 2, 5, lambda _: timed(lambda: todays_jobs(self.slurm, steps=steps)), note)  # noqa: B023

    def _health(self) -> None:
        """CPU seconds are CPU seconds; all others pass on the clock."""
        with_checks = [quiet_minute(self.slurm, "default-0") for _ in range(4)]
        with_ours = [chain(self._as_alice) for _ in range(4)]
        self.slurm.change("slurm.settings", {"Prolog": "/usr/bin/true", "Epilog": "/usr/bin/true"})
        self.slurm.await_idle("default-0", "default-1")
        without = statistics.median(chain(self._as_alice) for _ in range(4))
        note = f"a job of nothing then takes {without:.2f} s"
        self._figure("prolog and epilog add to a job", 0.3, 4, lambda number: with_ours[number] - without, note)
        self.slurm.change("slurm.settings", dev()["slurm"]["settings"])
        self._machines_and_faults()
        self.slurm.change("health", {"enabled": False})
        self.slurm.await_idle("default-0", "default-1")
        bare = statistics.median(quiet_minute(self.slurm, "default-0") for _ in range(4))
        note = f"an idle worker without checks uses {bare:.2f}"
        what = "CPU seconds a minute that checks every 30 s add to an idle worker"
        self._figure(what, 0.2, 4, lambda number: with_checks[number] - bare, note)

    def _machines_and_faults(self) -> None:
        """How soon something is done about them."""
        gpus = give_gpus(self.slurm)
        self._figure("a GPU is lost -> its node is drained", 35, 4, lambda _: lost_gpu(self.slurm, gpus, "default-0"))
        self.slurm.up()
        self._figure("a Kubernetes node is lost -> its job is requeued", 60, 2, lambda _: lost_machine(self.slurm))


SUBMISSIONS = 100
"""Jobs that are submitted through the REST API."""

REST_CLIENT = """
import http.client, json, os, ssl, sys, threading, time
number, connections = map(int, sys.argv[1:])
context = ssl.create_default_context(cafile="ca.pem")
headers = {"X-SLURM-USER-TOKEN": os.environ["SLURM_JWT"], "Content-Type": "application/json"}
job = {"current_working_directory": "/tmp", "environment": ["PATH=/bin"], "standard_output": "/dev/null"}
body = json.dumps({"script": "#!/bin/sh\\ntrue\\n", "job": job})
def submit(count):
    connection = http.client.HTTPSConnection("rest", 6820, context=context)
    for _ in range(count):
        connection.request("POST", "/slurm/v0.0.42/job/submit", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            os.write(2, text)
            os._exit(1)
started = time.monotonic()
counts = [number // connections + (index < number % connections) for index in range(connections)]
threads = [threading.Thread(target=submit, args=(count,)) for count in counts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.monotonic() - started)
"""
"""What a user's script would do: connections that stay open, one request after the other on each."""


def render_figures() -> list[Figure]:
    """`render` as a user runs it, for stacks of several sizes."""
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        for pools in (1, 10, 100):
            file = Path(directory) / f"Pulumi.pools{pools}.yaml"
            document = {"config": {f"slurmstack:{name}": value for name, value in with_pools(pools).items()}}
            file.write_text(json.dumps(document), encoding="utf-8")
            arguments = ("render", "--config", str(file), "--output", f"{directory}/out{pools}")
            figure = Figure(f"render of {pools} pools", 5)
            figure.times = [timed(lambda: slurmstack(*arguments)) for _ in range(5)]  # noqa: B023  used at once
            figure.note = f"{len(list(Path(directory, f'out{pools}').glob('*.yaml')))} objects"
            figures.append(figure)
    return figures


def main() -> None:
    """Measure the parts that are named (all by default), print a table, keep the figures in `bench-results/`."""
    parts = sys.argv[1:] or PARTS
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"error: unknown parts: {', '.join(sorted(unknown))} (there are: {', '.join(PARTS)})")
    if not local_cluster.status().healthy:
        sys.exit("error: the local cluster is not running; `make up` starts it")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        try:
            bench.run(parts)
        finally:
            bench.figures += render_figures() if "render" in parts else []
            _print(bench.figures)


def _print(figures: list[Figure]) -> None:
    table = Table("what", "median s", "spread s", "runs", "goal s", "met", "note")
    for figure in figures:
        table.add_row(*figure.cells(), figure.note)
    Console(width=150).print(table)
    print("| what | median s | spread s | runs | goal s | met |\n| --- | ---: | ---: | ---: | ---: | --- |")
    for figure in figures:
        cells = figure.cells()
        print("| " + " | ".join([cells[0] + (f" ({figure.note})" if figure.note else ""), *cells[1:]]) + " |")
    RESULTS.mkdir(exist_ok=True)
    values = [{"what": item.what, "goal": item.goal, "seconds": item.times, "note": item.note} for item in figures]
    (RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json").write_text(json.dumps(values, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
