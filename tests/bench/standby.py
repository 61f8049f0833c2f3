"""How long nothing is accepted when the active one of two controllers is lost, or paused."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from tests.bench.figures import Bench
from tests.slurm.minimal import minimal_config
from tests.slurm.standby import HOLD, SAVED_SECONDS, SETTINGS, StandbySandbox

VERSION = "24.11"
GOAL = 12


def standby(bench: Bench) -> None:
    """20 times each; a job that was accepted before is in the queue each time."""
    with StandbySandbox(VERSION, config=minimal_config(VERSION, SETTINGS)) as sandbox:
        sandbox.run(HOLD)
        for how, lose in (("killed", _kill), ("paused", _pause)):
            name = f"the active one of two controllers is {how} -> sbatch accepted"
            bench.measure(name, partial(_once, sandbox, lose), runs=20, goal=GOAL, worst=True)


def _kill(sandbox: StandbySandbox) -> None:
    sandbox.holder.stop()


def _pause(sandbox: StandbySandbox) -> None:
    sandbox.signal_all(sandbox.holder, signal.SIGSTOP)


def _once(sandbox: StandbySandbox, lose: Callable[[StandbySandbox], None], _: int) -> float:
    sandbox.make_whole()
    time.sleep(SAVED_SECONDS)
    before = len(sandbox.queue())
    lost = sandbox.holder
    lose(sandbox)
    took = sandbox.accepted_after()
    assert len(sandbox.queue()) == before + 1
    if lost.pid:
        time.sleep(SAVED_SECONDS)
        files = sandbox.files()
        sandbox.signal_all(lost, signal.SIGCONT)
        time.sleep(1)
        assert not sandbox.runs("slurmctld", lost)
        assert sandbox.files() == files
    return took
