"""The end of slurmctld: held up only where the whole cluster goes, and then until the last worker has left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from images.common.command import Result
from images.common.kubernetes import Kube, KubeError, Object
from images.controller.leave import SETTLE_SECONDS, SILENCE_SECONDS, Ending, Leaving
from tests.fakes.commands import FakeClock, FakeRunner


def thing(name: str, *, deleted: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}}


class FakeCluster:
    """The API, with a cluster that stays unless it is told otherwise."""

    def __init__(self) -> None:
        self.sets = [thing("controller"), thing("default")]
        self.namespace = thing("slurm")
        self.workers: list[dict[str, Any]] = [thing("default-0"), thing("default-1")]
        self.error: KubeError | None = None
        self.namespace_error: KubeError | None = None
        self.clock = FakeClock()

    def list_stateful_sets(self) -> list[Object]:
        return list(self._answer(self.sets))

    def get_namespace(self) -> Object:
        if self.namespace_error is not None:
            raise self.namespace_error
        return self.namespace

    def list_workers(self) -> list[Object]:
        return list(self._answer(self.workers))

    def _answer(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return items

    def at(self, *steps: tuple[float, Callable[[], None]]) -> None:
        """Let something happen at its time."""
        waiting = list(steps)

        def on_sleep() -> None:
            while waiting and self.clock.time >= waiting[0][0]:
                waiting.pop(0)[1]()

        self.clock.on_sleep = on_sleep

    def set_workers(self, *workers: dict[str, Any]) -> Callable[[], None]:
        def change() -> None:
            self.workers = list(workers)

        return change


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def leave(cluster: FakeCluster, jobs: str = "") -> tuple[Ending, str]:
    log: list[str] = []
    runner = FakeRunner({"squeue": Result(code=0, stdout=jobs)})
    ending = Leaving(cast("Kube", cluster), log.append, runner=runner, clock=cluster.clock).run()
    return ending, "\n".join(log)


def test_a_restart_is_not_held_up(cluster: FakeCluster) -> None:
    assert leave(cluster) == (Ending.ORDINARY, "")
    assert cluster.clock.time == 0


@pytest.mark.parametrize(
    "goes",
    [
        pytest.param({"sets": [thing("default")]}, id="the StatefulSet is gone"),
        pytest.param({"sets": [thing("controller", deleted=True)]}, id="it is being deleted"),
        pytest.param({"namespace": thing("slurm", deleted=True)}, id="the namespace is being deleted"),
    ],
)
def test_where_the_cluster_goes_it_stays_until_the_last_worker_has_left(
    cluster: FakeCluster, goes: dict[str, Any]
) -> None:
    vars(cluster).update(goes)
    leaving = [thing("default-0", deleted=True), thing("default-1", deleted=True)]
    hours = 3600.0 * 50
    cluster.at(
        (1, cluster.set_workers(*leaving)),
        (hours, cluster.set_workers(leaving[0])),
        (hours + 60, cluster.set_workers()),
    )
    ending, log = leave(cluster, jobs="17\n18\n")
    assert ending is Ending.LEFT
    assert cluster.clock.time >= hours + 60
    assert log.splitlines()[0] == "waiting for 2 workers to leave (default-0, default-1), with 2 running jobs"
    assert "1 workers to leave (default-0)" in log


def test_an_idle_cluster_goes_at_once_when_its_workers_have(cluster: FakeCluster) -> None:
    cluster.sets, cluster.workers = [], []
    assert leave(cluster)[0] is Ending.LEFT
    assert cluster.clock.time == 0


def test_workers_that_stay_are_not_waited_for(cluster: FakeCluster) -> None:
    """Somebody has deleted the controller alone."""
    cluster.sets = [thing("default")]
    assert leave(cluster)[0] is Ending.STAYING
    assert SETTLE_SECONDS <= cluster.clock.time < SETTLE_SECONDS + 5


def test_an_api_that_never_answers_holds_nothing_up_for_long(cluster: FakeCluster) -> None:
    cluster.error = KubeError("no answer from the API server: timed out")
    ending, log = leave(cluster)
    assert ending is Ending.UNKNOWN
    assert SILENCE_SECONDS <= cluster.clock.time < SILENCE_SECONDS + 1
    assert "timed out" in log


@pytest.mark.parametrize("status", [None, 429, 503])
def test_one_question_without_an_answer_does_not_make_it_an_ordinary_end(
    cluster: FakeCluster, status: int | None
) -> None:
    cluster.namespace = thing("slurm", deleted=True)
    cluster.namespace_error = KubeError("busy", status)
    cluster.at((5, lambda: setattr(cluster, "namespace_error", None)), (20, cluster.set_workers()))
    assert leave(cluster)[0] is Ending.LEFT
    assert cluster.clock.time >= 20


def test_an_api_that_refuses_holds_nothing_up(cluster: FakeCluster) -> None:
    cluster.error = KubeError("403 statefulsets is forbidden", 403)
    assert leave(cluster)[0] is Ending.UNKNOWN
    assert cluster.clock.time == 0


def test_a_role_that_may_not_see_the_namespace_holds_nothing_up(cluster: FakeCluster) -> None:
    cluster.namespace_error = KubeError("GET /api/v1/namespaces/slurm: 403 forbidden", 403)
    assert leave(cluster)[0] is Ending.ORDINARY


def test_an_api_that_fails_for_a_moment_is_asked_again(cluster: FakeCluster) -> None:
    cluster.sets = []
    cluster.workers = [thing("default-0", deleted=True)]

    def fail() -> None:
        cluster.error = KubeError("503 unavailable", 503)

    def heal() -> None:
        cluster.error = None

    cluster.at((1, fail), (SILENCE_SECONDS / 2, heal), (100, cluster.set_workers()))
    assert leave(cluster)[0] is Ending.LEFT
    assert cluster.clock.time >= 100


def test_rights_that_are_gone_before_the_workers_end_the_wait(cluster: FakeCluster) -> None:
    cluster.sets = []

    def forbid() -> None:
        cluster.error = KubeError("403 pods is forbidden", 403)

    cluster.at((1, forbid))
    ending, log = leave(cluster)
    assert ending is Ending.UNKNOWN
    assert SILENCE_SECONDS <= cluster.clock.time < 2 * SILENCE_SECONDS
    assert "403 pods is forbidden" in log
