"""The Lease of two controllers, against an API server that refuses what a real one refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from images.common.kubernetes import Kube, KubeError
from images.common.wait import Clock
from images.controller.lease import SECONDS, Lease
from tests.fakes.kubernetes import FakeKubernetes

LEASES = "/apis/coordination.k8s.io/v1/namespaces/slurm/leases"


class Hands(Clock):
    """A clock that stands until it is moved."""

    time = 100.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    server = FakeKubernetes()
    yield server
    server.close()


@pytest.fixture
def kube(api: FakeKubernetes) -> Kube:
    return Kube(host="127.0.0.1", port=api.port, namespace="slurm", tls=False)


def spec(api: FakeKubernetes) -> dict[str, Any]:
    found: dict[str, Any] = api.collections[LEASES]["controller"]["spec"]
    return found


def test_it_runs_out_when_nobody_renews_it_for_as_long_as_one_has_watched(kube: Kube) -> None:
    clock = Hands()
    one, other = Lease(kube, "a"), Lease(kube, "b", clock)
    one.acquire(1)
    clock.time += 1000  # however old it may have been before
    assert other.acquire(1) is None
    clock.time += SECONDS - 0.1
    one.renew(1)
    assert other.acquire(1) is None
    clock.time += SECONDS - 0.1
    assert other.acquire(1) is None
    clock.time += 0.2
    assert one.is_mine(1)
    assert other.acquire(1) == 2
    assert not one.is_mine(1)
    assert not one.renew(1)


def test_a_term_is_never_below_what_the_volume_has_and_the_same_pod_goes_on_at_once_in_a_later_one(kube: Kube) -> None:
    assert Lease(kube, "a").acquire(8) == 8
    assert Lease(kube, "a").acquire(1) == 9


def test_of_two_that_see_it_run_out_one_gets_it(api: FakeKubernetes, kube: Kube) -> None:
    Lease(kube, "a").acquire(1)
    Lease(kube, "a").release(1)
    faster = Lease(kube, "c")

    def first() -> None:
        api.before_change = lambda: None
        assert faster.acquire(1) == 2

    api.before_change = first
    assert Lease(kube, "b").acquire(1) is None
    assert spec(api)["holderIdentity"] == "c"


def test_after_an_api_server_that_was_away_it_is_watched_anew(api: FakeKubernetes, kube: Kube) -> None:
    clock = Hands()
    one, other = Lease(kube, "a"), Lease(kube, "b", clock)
    one.acquire(1)
    assert other.acquire(1) is None
    api.down = True
    with pytest.raises(KubeError):
        other.acquire(1)
    api.down = False
    clock.time += 10 * SECONDS
    assert other.acquire(1) is None, "nobody could renew it"
    clock.time += SECONDS
    assert other.acquire(1) == 2
