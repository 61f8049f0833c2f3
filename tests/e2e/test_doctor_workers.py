"""Workers that cannot be made, placed, started or used, beside two that are well: doctor names what ails each.

What is told after minutes only begins first, and is looked at last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import ill_workers
from tests.e2e.asking_doctor import doctor, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.ill_workers import ILL, SLOW

pytestmark = pytest.mark.watch

FREEZER = Path("/sys/fs/cgroup/freezer")
"""Of version 1 of cgroups: what is frozen there cannot even be killed."""

SIGNAL = """
for pid in /proc/[0-9]*; do
  case $(tr '\\0' ' ' 2>/dev/null <$pid/cmdline) in /usr/sbin/slurmd\\ *) kill -{} ${{pid#/proc/}};; esac
done
"""


def told(slurm: SlurmOnKubernetes) -> list[str]:
    """All causes, and what follows from them."""
    return [text for item in doctor(slurm)[0]["findings"] for text in (item["cause"], *item["consequences"])]


def signal_slurmd(slurm: SlurmOnKubernetes, name: str) -> None:
    slurm.exec("default-0", "bash", "-c", SIGNAL.format(name), container="slurmd")


class FrozenJob:
    """A job on default-1 whose processes cannot be ended, where this machine can do that."""

    def __init__(self, slurm: SlurmOnKubernetes) -> None:
        self.slurm = slurm
        self.group = FREEZER / f"slurmstack-{slurm.namespace}"
        self.id = ""
        if FREEZER.is_dir():
            self.id = slurm.submit("sleep 987654", "--nodelist=default-1")
            wait_until(self.processes, "the job's process is there")
            self.group.mkdir(exist_ok=True)
            for pid in self.processes():
                (self.group / "cgroup.procs").write_text(str(pid))
            (self.group / "freezer.state").write_text("FROZEN")
            slurm.slurm(f"scancel {self.id}")

    def processes(self) -> list[int]:
        """On this machine; other lanes' jobs have other times to sleep."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text, mounts = file.read_bytes(), (file.parent / "mountinfo").read_text()
            except OSError:
                continue
            if text == b"sleep\0987654\0" and f"volumes/{self.slurm.namespace}/" in mounts:
                found.append(int(file.parent.name))
        return found

    def thaw(self) -> None:
        if self.group.is_dir():
            (self.group / "freezer.state").write_text("THAWED")
            wait_until(lambda: not (self.group / "cgroup.procs").read_text(), "the frozen processes have ended")
            self.group.rmdir()


@pytest.fixture(scope="module")
def frozen(slurm: SlurmOnKubernetes) -> Iterator[FrozenJob]:
    """All the ailing workers, and both good ones: one does not hear slurmctld, one cannot end a job."""
    slurm.await_idle("default-0", "default-1")
    pools = {name: change for name, (change, _) in {**SLOW, **ILL}.items()}
    ill_workers.apply(slurm, ill_workers.claim())
    job = FrozenJob(slurm)
    try:
        ill_workers.start(slurm, pools)
        wait_until(lambda: "stays-0" in slurm.pods(), "the pod that stays is there")
        slurm.kubectl.run("delete", "pod", "stays-0", "-n", slurm.namespace, "--grace-period=1", "--wait=false")
        signal_slurmd(slurm, "STOP")
        yield job
    finally:
        signal_slurmd(slurm, "CONT")
        job.thaw()
        ill_workers.remove(slurm, pools)
        slurm.kubectl.run("delete", "pvc", ill_workers.CLAIM, "-n", slurm.namespace)
    slurm.await_idle("default-0", "default-1")
    wait_until(lambda: not told(slurm), "nothing is found when all is over")


def test_a_worker_is_told_what_ails_it_alone_and_among_others(slurm: SlurmOnKubernetes, frozen: FrozenJob) -> None:
    found: set[str] = set()

    def all_told() -> bool:
        """Some go on failing in turns: each has to be seen once."""
        said = told(slurm)
        found.update(name for name, (_, cause) in ILL.items() if any(re.fullmatch(cause, text) for text in said))
        return found == set(ILL)

    try:
        wait_until(all_told, "all are told", slowest=2)
    except AssertionError:
        pytest.fail(f"not told: {set(ILL) - found}")
    assert {f"the cluster has a pool {name} that is not in the stack file" for name in ILL} <= set(told(slurm))
    for name in ("claim", "secret", "small"):
        said = first(slurm, "node", f"{name}-0")["cause"]
        assert re.fullmatch(ILL[name][1], said), said


def test_what_lasts_for_minutes_is_told_then(slurm: SlurmOnKubernetes, frozen: FrozenJob) -> None:
    wanted = {name: cause for name, (_, cause) in SLOW.items()}
    wanted["silent"] = "slurmctld does not hear from node default-0, though its pod is ready: munge, clock or network"
    if frozen.id:
        wanted["processes"] = "node default-1 is drained by its health checks: processes"
    found: set[str] = set()

    def all_told() -> bool:
        said = told(slurm)
        found.update(name for name, cause in wanted.items() if any(re.fullmatch(cause, text) for text in said))
        return found == set(wanted)

    try:
        wait_until(all_told, "all are told", timeout=240, slowest=5)
    except AssertionError:
        pytest.fail(f"not told: {set(wanted) - found}: {told(slurm)}")
