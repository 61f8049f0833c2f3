"""The end of slurmctld: held up only where the whole cluster goes, and then until the last worker has left."""

from __future__ import annotations

from typing import Any, cast

import pytest

from images.common.command import Result
from images.common.kubernetes import Kube, KubeError, Object
from images.controller.leave import SETTLE_SECONDS, SILENCE_SECONDS, Leaving
from tests.fakes.commands import FakeClock, FakeRunner


def thing(name: str, *, deleted: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}}


DELETED = {"namespace": thing("slurm", deleted=True)}
LEAVING = [thing("default-0", deleted=True), thing("default-1", deleted=True)]


class FakeCluster:
    """The API, with a cluster that stays unless it is told otherwise."""

    def __init__(self, *steps: tuple[float, dict[str, Any]]) -> None:
        """What is so from which second on; at 0 also what is said here."""
        self.sets = [thing("controller"), thing("default")]
        self.namespace = thing("slurm")
        self.workers = [thing("default-0"), thing("default-1")]
        self.error: KubeError | None = None
        self.namespace_error: KubeError | None = None
        self.clock = FakeClock()
        self.steps = list(steps)
        self.clock.on_sleep = self.go_on
        self.go_on()

    def go_on(self) -> None:
        while self.steps and self.clock.time >= self.steps[0][0]:
            vars(self).update(self.steps.pop(0)[1])

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


def leave(*steps: tuple[float, dict[str, Any]], jobs: str = "") -> tuple[str, float, str]:
    """How it ends, after how many seconds, and what it has said."""
    cluster, log = FakeCluster(*steps), list[str]()
    runner = FakeRunner({"squeue": Result(code=0, stdout=jobs)})
    ending = Leaving(cast("Kube", cluster), log.append, runner=runner, clock=cluster.clock).run()
    return ending, cluster.clock.time, "\n".join(log)


def test_a_restart_is_not_held_up() -> None:
    assert leave() == ("the cluster stays", 0, "")


@pytest.mark.parametrize(
    "goes",
    [
        pytest.param({"sets": [thing("default")]}, id="the StatefulSet is gone"),
        pytest.param({"sets": [thing("controller", deleted=True)]}, id="it is being deleted"),
        pytest.param(DELETED, id="the namespace is being deleted"),
    ],
)
def test_where_the_cluster_goes_it_stays_until_the_last_worker_has_left(goes: dict[str, Any]) -> None:
    hours = 3600.0 * 50
    _, seconds, log = leave(
        (0, goes), (1, {"workers": LEAVING}), (hours, {"workers": LEAVING[:1]}), (hours + 60, {"workers": []}),
        jobs="17\n18\n",
    )  # fmt: skip
    assert seconds >= hours + 60
    assert log.splitlines()[0] == "waiting for 2 workers to leave (default-0, default-1), with 2 running jobs"
    assert "1 workers to leave (default-0)" in log


def test_workers_that_stay_are_not_waited_for() -> None:
    """Somebody has deleted the controller alone."""
    _, seconds, _ = leave((0, {"sets": [thing("default")]}))
    assert SETTLE_SECONDS <= seconds < SETTLE_SECONDS + 5


def test_an_api_that_never_answers_holds_nothing_up_for_long() -> None:
    _, seconds, log = leave((0, {"error": KubeError("no answer from the API server: timed out")}))
    assert SILENCE_SECONDS <= seconds < SILENCE_SECONDS + 1
    assert "timed out" in log


def test_one_question_without_an_answer_does_not_make_it_an_ordinary_end() -> None:
    busy = {"namespace_error": KubeError("busy", 503)}
    _, seconds, _ = leave((0, DELETED | busy), (5, {"namespace_error": None}), (20, {"workers": []}))
    assert seconds >= 20
