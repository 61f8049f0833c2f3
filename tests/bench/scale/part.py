"""How figures grow with the number of nodes: 100, 300 and 1,000 slurmd on this machine, one cluster after the other."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

from images.common.slurm_records import nodes_in
from images.controller.topology import render
from images.health.slurm import parse_nodes
from tests.bench.row import Measuring, timed
from tests.bench.scale.queue import scheduling
from tests.bench.scale.sandbox import LABELS, ScaleSandbox, labels
from tests.slurm.pod import wait_until
from tests.stacks import with_change

NODES = (100, 300, 1000)

STEP_NODES = 100
"""Nodes of the large job step. One of all 1,000 would need 20,000 threads, more than a machine gives out at once."""

THREADS = 12
"""Of one idle slurmd, with the shell that started it; measured: 11."""

STEP_THREADS = 30
"""More of one slurmd with a step; measured: 20 to 28."""

MEMORY_MIB = 10
"""Of one slurmd; measured: 7."""

HEALTH = """
import os, sys
sys.path.insert(0, "/usr/lib/slurmstack")
from images.health import periodic
for _ in range(%d):
    child = os.fork()
    if child == 0:
        sys.stdout = open(os.devnull, "w")
        os._exit(periodic.main())
    _, status, used = os.wait4(child, 0)
    assert status == 0, status
    print(used.ru_utime + used.ru_stime)
"""
"""Runs of the checks as a node's resident process makes them: CPU seconds of each."""


def scale(bench: Measuring) -> None:
    """All numbers of nodes that fit on this machine."""
    for nodes in nodes_wanted():
        if missing := lacking(nodes):
            bench.say(f"{nodes} nodes are left out: {missing}")
            bench.left_out.append(f"{nodes} slurmd ({missing})")
            continue
        bench.say(f"{nodes} nodes: the controller and a network for each node are set up")
        with ScaleSandbox(nodes) as sandbox:
            _measure(bench, sandbox, nodes)
            bench.say(f"{nodes} nodes: all is taken away")


def nodes_wanted() -> tuple[int, ...]:
    """The numbers of nodes; others by `SCALE_NODES="10 50"`, for trying out."""
    asked = os.environ.get("SCALE_NODES", "").split()
    return tuple(int(number) for number in asked) or NODES


def lacking(nodes: int) -> str:
    """What this machine has too little of for so many nodes; empty where they fit."""
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    threads = running + nodes * THREADS + min(nodes, STEP_NODES) * STEP_THREADS
    if threads > limit:
        return f"{threads} threads of at most {limit}"
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(memory["MemAvailable"].split()[0]) // 1024
    if nodes * MEMORY_MIB + 1000 > free:
        return f"{nodes * MEMORY_MIB + 1000} MiB of memory, {free} are free"
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{nodes + 200} open files of at most {files}" if nodes + 200 > files else ""


def _measure(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    bench.take("slurmd started, one after the other -> all idle", [_register(sandbox)], nodes=nodes)
    bench.take("slurmctld: resident memory, nodes idle", [resident(sandbox)], unit="MiB", nodes=nodes)
    _commands(bench, sandbox, nodes)
    step = min(nodes, STEP_NODES)
    bench.measure(f"srun -N{STEP_NODES} hostname", lambda _: _srun(sandbox, step), runs=3, nodes=nodes)
    scheduling(bench, sandbox, nodes)
    bench.take("slurmctld: resident memory after that", [resident(sandbox)], unit="MiB", nodes=nodes)
    bench.take("slurmctld killed and started -> all registered again", [_restart(sandbox)], nodes=nodes)
    _health(bench, sandbox, nodes)
    _topology(bench, sandbox, nodes)


def _register(sandbox: ScaleSandbox) -> float:
    started = time.monotonic()
    sandbox.start_nodes()
    sandbox.await_idle(300)
    return time.monotonic() - started


def _commands(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    def run(*command: str) -> str:
        done = sandbox.run(command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def watcher() -> None:
        assert len(parse_nodes(run("scontrol", "show", "nodes", "--json"))) == nodes

    bench.measure("sinfo", lambda _: timed(lambda: run("sinfo")), runs=5, nodes=nodes)
    bench.measure("scontrol show nodes", lambda _: timed(lambda: run("scontrol", "show", "nodes")), runs=5, nodes=nodes)
    bench.measure("health: the watcher reads all nodes", lambda _: timed(watcher), runs=5, nodes=nodes)


def _srun(sandbox: ScaleSandbox, step: int) -> float:
    sandbox.await_idle(120)
    started = time.monotonic()
    printed = sandbox.as_user(f"srun -N{step} hostname")
    taken = time.monotonic() - started
    assert len(set(printed.split())) == step, printed
    return taken


def _restart(sandbox: ScaleSandbox) -> float:
    sandbox.await_idle(120)
    started = time.monotonic()
    sandbox.run(["pkill", "-KILL", "--exact", "slurmctld"])
    wait_until(lambda: sandbox.run(["pgrep", "--exact", "slurmctld"]).returncode != 0, "slurmctld to be gone")
    sandbox.start_slurmctld()
    wait_until(lambda: _registrations(sandbox) >= len(sandbox.names), lambda: sandbox.run("sdiag").stdout, 300)
    sandbox.await_idle(60)
    return time.monotonic() - started


def _registrations(sandbox: ScaleSandbox) -> int:
    """How often nodes have registered since slurmctld started; it shows them idle from before it has heard of them."""
    found = re.search(r"MESSAGE_NODE_REGISTRATION_STATUS.*?count:(\d+)", sandbox.run(["sdiag"]).stdout)
    return int(found[1]) if found else 0


def _health(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    """One node's checks, twice a minute, for all nodes. The first run is not like others: it loads what it needs."""
    worker = sandbox.start_whole_worker()
    done = worker.run(["python3", "-"], stdin=HEALTH % (bench.times(5) + 1))
    assert done.returncode == 0, done.stderr
    seconds = [float(line) for line in done.stdout.split()][1:]
    bench.take("health: CPU of one run of a node's checks", [used * 1000 for used in seconds], unit="ms", nodes=nodes)
    name = "health: CPU seconds a minute of all nodes (computed: one node's run, twice a minute)"
    bench.take(name, [2 * nodes * used for used in seconds], nodes=nodes)


def _topology(bench: Measuring, sandbox: ScaleSandbox, nodes: int) -> None:
    """What the configuration agent does each second where there is a tree, and how long a new tree takes."""
    places = {name: tuple(labels(number).values()) for number, name in enumerate(sandbox.names)}

    def look() -> None:
        seen = nodes_in(sandbox.run(["scontrol", "show", "nodes", "--oneliner"]).stdout)
        render({node.name: places.get(node.name, ()) for node in seen})

    def made(_: int) -> float:
        return timed(lambda: render(places)) * 1000

    bench.measure("topology: topology.conf is made", made, runs=5, unit="ms", nodes=nodes)
    bench.measure("topology: one look at all nodes", lambda _: timed(look), runs=5, nodes=nodes)

    sandbox.stack = with_change(sandbox.stack, "topology", {"plugin": "tree", "labels": list(LABELS)})
    started = time.monotonic()
    sandbox.configure()
    wait_until(lambda: _in_tree(sandbox) == nodes, lambda: sandbox.controller.log("config-agent")[-3000:], 120)
    bench.take("topology: tree asked for -> all nodes in it", [time.monotonic() - started], nodes=nodes)


def _in_tree(sandbox: ScaleSandbox) -> int:
    """How many nodes are below a leaf switch that has a label."""
    shown = sandbox.run(["scontrol", "show", "topology"]).stdout
    leaves = [dict(word.partition("=")[::2] for word in line.split()) for line in shown.splitlines()]
    lists = [leaf["Nodes"] for leaf in leaves if leaf.get("Level") == "0" and leaf.get("SwitchName") != "unknown"]
    if not lists:
        return 0
    return len(sandbox.run(["scontrol", "show", "hostnames", ",".join(lists)]).stdout.split())


def resident(sandbox: ScaleSandbox) -> float:
    """MiB of slurmctld."""
    status = Path(f"/proc/{sandbox.slurmctld}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
