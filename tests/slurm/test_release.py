"""Ten broken machines at once, with a real Slurm: no more of them are released for replacement than may be at a time.

The Kubernetes API is played; the watcher runs here, and its Slurm commands in the controller's pod.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.health.report import Report, encode
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import HANG_SECONDS, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.unit.images.health.watch.release_cluster import Fleet

pytestmark = pytest.mark.soak

BROKEN, LIMIT = 10, 2


class RealFleet(Fleet):
    """Eleven machines, the workers of which are real."""

    def __init__(self, token: Path, sandbox: SlurmSandbox) -> None:
        def run(argv: Sequence[str], *, timeout: float = HANG_SECONDS, env: Mapping[str, str] | None = None) -> Result:
            done = sandbox.run(argv, timeout=timeout, env=env)
            return Result(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

        self.sandbox = sandbox
        super().__init__(token, run, BROKEN + 1)

    def report(self, *names: str) -> None:
        """What the checks of these nodes say now."""
        for name in names or self.names:
            line = encode(Report(at=int(time.time()), results=self.results[name]))
            done = self.runner(["scontrol", "update", f"nodename={name}", f"comment={line}"])
            assert done.ok, done.message

    def drained(self) -> list[str]:
        return sorted(name for name, states in self.sandbox.node_states().items() if "DRAIN" in states)

    def rounds_until(self, reached: Callable[[], bool], what: str) -> None:
        """Look again and again; at no time more machines are released than the limit allows."""

        def after_a_round() -> bool:
            if reached():
                return True
            self.watcher.round()
            assert len(self.released()) <= LIMIT
            return False

        wait_until(after_a_round, lambda: f"{what}: {self.log}\n{self.sandbox.logs()}")


@pytest.fixture
def fleet(slurm_version: str, tmp_path: Path) -> Iterator[RealFleet]:
    with SlurmSandbox(slurm_version, config=minimal_config(slurm_version), workers=0) as sandbox:
        made = RealFleet(tmp_path, sandbox)
        for name in made.names:
            sandbox.start_worker_on(name)
        sandbox.wait_for_nodes(len(made.names))
        yield made
        made.kubernetes.close()


def test_ten_faults_at_once_release_no_more_machines_than_may_be_unavailable(fleet: RealFleet) -> None:
    fleet.start(max_unavailable=str(LIMIT), after=0)
    fleet.break_gpu(*fleet.names[:BROKEN])
    time.sleep(6)  # what was found before slurmd has started is of another machine
    fleet.report()
    fleet.rounds_until(lambda: len(fleet.drained()) == BROKEN, "all that are broken are drained")
    assert fleet.names[-1] not in fleet.drained()
    fleet.rounds_until(lambda: len(fleet.released()) == LIMIT, "two are released")
    first = fleet.released()
    assert all(fleet.kubernetes.is_cordoned(machine) for machine in first)
    assert [line for line in fleet.log if line.startswith(f"not released, as no more than {LIMIT} may be")]

    time.sleep(6)  # what a check found before counts as older than the drain
    mended = first[0].replace("m-", "w-")
    fleet.heal(mended)
    fleet.report(mended)
    fleet.kubernetes.cordon(first[0], cordoned=False)  # by whoever has mended it
    fleet.rounds_until(lambda: mended not in fleet.drained(), "the one that is well is resumed")
    fleet.rounds_until(lambda: first[0] not in fleet.released() and len(fleet.released()) == LIMIT, "another is")
    assert len(fleet.drained()) == BROKEN - 1
