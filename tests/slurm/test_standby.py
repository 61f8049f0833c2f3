"""Two controllers with real daemons: the queue goes on, and who has lost the state writes nothing that counts."""

from __future__ import annotations

import os
import signal
import time

import pytest

from images.controller.epochs import LIMIT_SECONDS, RENEWED
from images.controller.standby import PODS
from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.slurm.standby import HOLD, SAVED_SECONDS, SETTINGS, StandbySandbox

JOBS = 50


@pytest.fixture(scope="module")
def shared(slurm_cluster: ClusterFactory, slurm_version: str) -> StandbySandbox:
    return slurm_cluster(slurm_version, kind=StandbySandbox, extra=SETTINGS)


@pytest.fixture
def cluster(shared: StandbySandbox) -> StandbySandbox:
    """Whole, with 50 jobs in the queue, which are saved."""
    shared.make_whole()
    shared.run("scancel --user=root")
    submit(shared, JOBS)
    time.sleep(SAVED_SECONDS)
    return shared


def submit(cluster: StandbySandbox, count: int) -> None:
    done = cluster.run(f"for _ in $(seq {count}); do {HOLD} || exit 1; done")
    assert done.returncode == 0, done.stderr


def ended(cluster: StandbySandbox, pod: Pod) -> bool:
    return not cluster.runs("slurmctld", pod)


def test_the_other_one_goes_on_with_the_queue_when_the_holder_s_machine_is_lost(cluster: StandbySandbox) -> None:
    before, jobs, holder = cluster.term, cluster.queue(), cluster.holder
    holder.stop()
    assert cluster.accepted_after() < 12
    assert cluster.holder is not holder
    assert cluster.term.name != before.name
    assert not before.exists()
    now = cluster.queue()
    assert now[:-1] == jobs
    assert now[-1] > jobs[-1], "numbers of jobs go on"


def test_a_holder_that_wakes_up_after_it_has_lost_the_state_writes_nothing_that_counts(cluster: StandbySandbox) -> None:
    holder, jobs = cluster.holder, cluster.queue()
    submit(cluster, 5)  # which it is about to save
    cluster.signal_all(holder, signal.SIGSTOP)
    assert cluster.accepted_after() < 12
    after = cluster.queue()
    assert {*after} >= {*jobs}
    time.sleep(SAVED_SECONDS)
    files = cluster.files()
    cluster.signal_all(holder, signal.SIGCONT)
    assert wait_until(lambda: ended(cluster, holder), cluster.logs) < 1
    time.sleep(1)
    assert cluster.files() == files
    assert cluster.queue() == after

    def of_new_agent() -> str:
        return holder.log("config-agent").rpartition("taken over")[2]

    wait_until(lambda: "standing by" in of_new_agent(), cluster.logs)
    cluster.start_standby(holder)
    wait_until(lambda: cluster.stands_by(holder), cluster.logs)
    cluster.holder.run("pkill -TERM -f libexec/slurmstack/standby")
    wait_until(lambda: " is active" in of_new_agent(), cluster.logs)
    assert cluster.holder is holder


def test_slurmctld_is_killed_when_the_volume_hangs(cluster: StandbySandbox) -> None:
    """What the thread opens never opens: a pipe that nobody reads."""
    holder, other = cluster.holder, cluster.other
    cluster.signal_all(other, signal.SIGSTOP)
    renewed = cluster.term / RENEWED
    text = renewed.read_text()
    os.mkfifo(renewed.with_suffix(".fifo"))
    renewed.with_suffix(".fifo").rename(renewed)
    assert wait_until(lambda: ended(cluster, holder), cluster.logs) < LIMIT_SECONDS + 1
    assert "has taken no renewal" in holder.log("standby")
    renewed.unlink()
    renewed.write_text(text)
    cluster.signal_all(other, signal.SIGCONT)
    cluster.accepted_after()
    assert cluster.holder is other


def test_slurmctld_that_fails_starts_again_where_it_was_and_one_that_ends_in_order_hands_over(
    cluster: StandbySandbox,
) -> None:
    holder, term = cluster.holder, cluster.term
    holder.run("pkill -KILL -x slurmctld")
    wait_until(lambda: not cluster.runs("standby", holder), cluster.logs)
    cluster.start_standby(holder)
    assert cluster.accepted_after() < 5
    assert (cluster.holder, cluster.term) == (holder, term)
    jobs = cluster.queue()
    holder.run("pkill -TERM -f libexec/slurmstack/standby")
    assert cluster.accepted_after() < 5
    assert cluster.holder is not holder
    assert cluster.queue()[:-1] == jobs


def test_a_queue_stays_without_the_standby_and_with_a_new_one(cluster: StandbySandbox) -> None:
    """2 -> 1 -> 2, each of which finds what the one before has left on the volume."""
    jobs = cluster.queue()
    for pod in (cluster.other, cluster.holder):  # as their set is scaled, and then replaced
        pod.run("pkill -TERM -f libexec/slurmstack/standby")
        wait_until(lambda pod=pod: not cluster.runs("standby", pod), cluster.logs)  # type: ignore[misc]
        cluster.remove_pod(pod.name)
    one = SlurmSandbox.start_controller(cluster, daemons=False)
    one.start_program("config-agent")
    one.start_program("slurmctld")
    asked = "squeue --noheader --format=%A --sort=i"
    wait_until(lambda: [*map(int, one.run(asked).stdout.split())] == jobs, cluster.logs)
    assert not list(cluster.state.glob("term-*"))
    one.run("pkill -TERM -x slurmctld")
    wait_until(lambda: ended(cluster, one), cluster.logs)
    cluster.remove_pod(one.name)
    for name in reversed(PODS):
        cluster.start_one(name)
    cluster.make_whole()
    assert cluster.queue() == jobs
    assert cluster.holder.name == PODS[0]
