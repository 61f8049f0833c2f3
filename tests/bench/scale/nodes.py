"""What 1,000 real slurmd on this machine take: to register, to run a job of a hundred, to register again."""

from __future__ import annotations

import re
import time

from tests.bench.figures import Bench
from tests.bench.scale.sandbox import NODES, ScaleSandbox, lacking
from tests.slurm.pod import wait_until

STEP_NODES = min(NODES, 100)
"""Nodes of the large job step. One of all 1,000 would need 20,000 threads, more than a machine gives out at once."""


def scale(bench: Bench) -> None:
    """All that fit on this machine, or none."""
    if missing := lacking():
        bench.leave_out(f"{NODES} slurmd ({missing})")
        return
    bench.say(f"{NODES} nodes: the controller and a network for each node are set up")
    with ScaleSandbox(NODES) as sandbox:
        bench.take("slurmd started, one after the other -> all idle", [_register(sandbox)], nodes=NODES)
        bench.measure(f"srun -N{STEP_NODES} hostname", lambda _: _srun(sandbox), runs=3, nodes=NODES)
        bench.take("slurmctld killed and started -> all registered again", [_restart(sandbox)], nodes=NODES)


def _register(sandbox: ScaleSandbox) -> float:
    started = time.monotonic()
    sandbox.start_nodes()
    sandbox.await_idle(300)
    return time.monotonic() - started


def _srun(sandbox: ScaleSandbox) -> float:
    sandbox.await_idle(120)
    started = time.monotonic()
    printed = sandbox.as_user(f"srun -N{STEP_NODES} hostname")
    taken = time.monotonic() - started
    assert len(set(printed.split())) == STEP_NODES, printed
    return taken


def _restart(sandbox: ScaleSandbox) -> float:
    sandbox.await_idle(120)
    started = time.monotonic()
    sandbox.end_slurmctld("KILL")
    sandbox.start_slurmctld()
    wait_until(lambda: _registrations(sandbox) >= len(sandbox.names), lambda: sandbox.run("sdiag").stdout, 300)
    sandbox.await_idle(60)
    return time.monotonic() - started


def _registrations(sandbox: ScaleSandbox) -> int:
    """How often nodes have registered since slurmctld started; it shows them idle from before it has heard of them."""
    found = re.search(r"MESSAGE_NODE_REGISTRATION_STATUS.*?count:(\d+)", sandbox.run(["sdiag"]).stdout)
    return int(found[1]) if found else 0
