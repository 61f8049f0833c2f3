"""Two controllers with real daemons: whatever becomes of the active one, what was accepted runs, and runs once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common import terms
from tests.slurm.cluster import ClusterFactory
from tests.slurm.failover import SETTINGS, FailoverSandbox, Stream, make_whole
from tests.slurm.pod import wait_until


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> FailoverSandbox:
    return slurm_cluster(slurm_version, kind=FailoverSandbox, workers=1, extra=SETTINGS)


@pytest.fixture
def stream(cluster: FailoverSandbox) -> Iterator[Stream]:
    wait_until(cluster.stands_by, cluster.logs)
    yield Stream(cluster)
    make_whole(cluster)


@pytest.mark.in_gate
@pytest.mark.usefixtures("stream")  # which makes the pair whole again
def test_what_was_answered_about_a_node_is_known_to_the_next_controller(cluster: FailoverSandbox) -> None:
    """slurmctld saves nodes up to five seconds late as well: a pod's registration would be lost, and its drain."""
    before, node = cluster.active, next(iter(cluster.node_states()))
    for reason in ("first", "second"):  # after a save the next one is late
        assert cluster.run(f"scontrol update nodename={node} state=drain reason={reason}").returncode == 0
    cluster.signal_all(before, signal.SIGKILL)
    wait_until(lambda: cluster.active is not before, cluster.logs)
    wait_until(lambda: [*cluster.node_states()] == [node], cluster.logs)
    assert "Reason=second " in cluster.run(f"scontrol show node {node}").stdout
    cluster.run(f"scontrol update nodename={node} state=resume")


def test_slurmctld_alone_is_started_again_where_it_was(cluster: FailoverSandbox, stream: Stream) -> None:
    before, term = cluster.active, terms.current(cluster.state)
    with stream.running():
        stream.go_on()
        killed = time.monotonic()
        cluster.run("pkill -KILL -x slurmctld", pod=before.name)
        stream.accepted_since(killed)
        stream.go_on()
    stream.check()
    assert (cluster.active, terms.current(cluster.state)) == (before, term)


def test_without_the_api_server_the_active_controller_goes_on(cluster: FailoverSandbox, stream: Stream) -> None:
    api = cluster.api
    assert api is not None
    before, term = cluster.active, terms.current(cluster.state)
    with stream.running():
        api.down = True
        before_it = len(api.questions)
        wait_until(lambda: len(api.questions) > before_it + 20, cluster.logs)  # for longer than a Lease lasts
        stream.go_on()
        assert (cluster.active, terms.current(cluster.state)) == (before, term)
        assert not stream.refused
        api.down = False
        stream.go_on()
    assert (cluster.active, terms.current(cluster.state)) == (before, term)
    assert not stream.refused
    stream.check()


def test_a_queue_stays_with_a_second_controller_and_without_it(own_cluster: ClusterFactory, slurm_version: str) -> None:
    """1 -> 2 -> 1: each finds what the one before has left in the volume, though it was killed while it saved."""
    one = own_cluster(slurm_version, workers=0, extra="EnforcePartLimits=NO\n")  # which would want a node for it
    job = one.run("sbatch --parsable --hold --output=/dev/null --wrap true").stdout.strip()
    assert job
    owner = (64030, 64030)
    one.run("pkill -TERM -x slurmctld")
    wait_until(lambda: one.run("pgrep -x slurmctld").returncode != 0, one.logs)
    cut_short(one.state)
    terms.take_over(terms.number_of(terms.take_over(1, owner, one.state)) + 1, owner, one.state)
    assert [path.name for path in one.state.iterdir()] == ["term-2"]
    cut_short(one.state / "term-2")
    one.remove_pod("controller-0")
    one.start_controller()
    assert one.run(f"squeue --noheader --jobs={job} --format=%A").stdout.split() == [job]
    assert not list(one.state.glob("term-*"))
    assert "whole again: job_state" in one.pods["controller-0"].log("slurmctld")


def cut_short(state: Path) -> None:
    """As if slurmctld had been killed in the midst of a save: the old job_state is away, the new one has not its name.

    24.11 would read what is older, and 26.05 nothing.
    """
    (state / "job_state").rename(state / "job_state.new")
    (state / "job_state.old").write_bytes(b"of long ago")
