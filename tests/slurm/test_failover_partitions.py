"""Two controllers with real daemons: the volume or the API server is away, for one of them or for both."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from images.common import terms
from images.controller.lease import VOLUME_SECONDS, Over
from images.controller.supervisor import PORT
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.failover import SETTINGS, Stream, make_whole
from tests.slurm.partitions import ApartSandbox
from tests.slurm.pod import wait_until

LOOK = f"import urllib.request as web; web.urlopen('http://127.0.0.1:{PORT}/ready')"

pytestmark = one_version


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> ApartSandbox:
    return slurm_cluster(slurm_version, kind=ApartSandbox, workers=1, extra=SETTINGS)


@pytest.fixture
def stream(cluster: ApartSandbox) -> Iterator[Stream]:
    wait_until(cluster.stands_by, cluster.logs)
    one_runs(cluster)
    yield Stream(cluster)
    make_whole(cluster)


def one_runs(cluster: ApartSandbox) -> None:
    """slurmctld runs in the pod that the Service leads to, and nowhere else."""

    def so() -> bool:
        return [cluster.runs("slurmctld", pod) for pod in (cluster.active, cluster.other)] == [True, False]

    wait_until(so, cluster.logs)


def test_who_alone_loses_the_volume_gives_way_and_stays_away(cluster: ApartSandbox, stream: Stream) -> None:
    before = cluster.active
    with stream.running():
        stream.go_on()
        with cluster.without_the_volume(before):
            stream.accepted_since(time.monotonic())
            assert cluster.active is not before
            # On a busy machine the API server is silent for a moment, too. Whoever gives way lets the other one go on
            # first; slurmctld, which hangs with the volume, may take seconds to be gone.
            reasons = (Over.VOLUME, Over.SILENCE)
            wait_until(lambda: any(str(reason) in before.log("supervisor") for reason in reasons), cluster.logs, 15)
            time.sleep(VOLUME_SECONDS + 2)
            assert "HTTP Error 503" in before.run(["python3", "-c", LOOK]).stderr, "it says that it could not take over"
            before.run("pkill -TERM -f libexec/slurmstack/supervisor")
            wait_until(lambda: not cluster.runs("supervisor", before), "it ends, though its volume hangs", 15)
        cluster.start_supervisor(before)
        stream.go_on()
    stream.check()
    assert cluster.active is not before
    one_runs(cluster)


def test_a_volume_that_is_frozen_for_both(cluster: ApartSandbox, stream: Stream) -> None:
    """For a moment: nothing happens. For longer: slurmctld is ended, and whoever goes on has lost nothing."""
    before, term = cluster.active, terms.current(cluster.state)
    with stream.running():
        stream.go_on()
        with cluster.frozen():
            time.sleep(VOLUME_SECONDS / 2)
        stream.accepted_since(time.monotonic())
        assert (cluster.active, terms.current(cluster.state)) == (before, term)
        with cluster.frozen():
            wait_until(lambda: str(Over.VOLUME) in before.log("supervisor"), cluster.logs, 5 * VOLUME_SECONDS)
            time.sleep(4)
        stream.accepted_since(time.monotonic())
        stream.go_on()
    stream.check()
    one_runs(cluster)


def test_who_alone_loses_the_api_server_learns_from_the_volume_that_its_turn_is_over(
    cluster: ApartSandbox, stream: Stream
) -> None:
    before = cluster.active
    with stream.running():
        stream.go_on()
        begun = len(before.log("supervisor"))
        with cluster.without_the_api_server(before):
            wait_until(lambda: cluster.active is not before, cluster.logs)
            stream.accepted_since(time.monotonic())
            wait_until(lambda: str(Over.STATE) in before.log("supervisor")[begun:], cluster.logs, 5)
            wait_until(lambda: not cluster.runs("slurmctld", before), cluster.logs, 5)
            stream.go_on()
        stream.go_on()
    stream.check()
    assert cluster.active is not before
    one_runs(cluster)
