"""Following the API server: all is read again only where it must be, and an old copy proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from images.common.kubernetes import Follower, KubeError, Object
from tests.fakes.commands import FakeClock


class Watched:
    """An API server: what each watch tells, and how it ends."""

    def __init__(self, *watches: list[tuple[str, str, str] | Exception]) -> None:
        self.watches = list(watches)
        self.lists = 0
        self.began: list[str] = []

    def list_all(self, path: str, **_: Any) -> tuple[list[Object], str]:
        del path
        self.lists += 1
        return [{"metadata": {"name": "m-0", "labels": {"at": "list"}}}], f"{self.lists}00"

    def watch(self, path: str, version: str, **_: Any) -> Iterator[tuple[str, Object]]:
        del path
        self.began.append(version)
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            kind, name, at = event
            yield kind, {"metadata": {"name": name, "labels": {"at": at}, "resourceVersion": at}}


def follow(*watches: list[tuple[str, str, str] | Exception]) -> tuple[Watched, Follower[str]]:
    server = Watched(*watches)
    follower: Follower[str] = Follower(
        server,  # type: ignore[arg-type]
        "/api/v1/nodes",
        lambda item: str(item["metadata"]["labels"]["at"]),
        lambda _: None,
    )
    for _ in watches:
        try:
            follower.follow_once()
        except (KubeError, KeyError):
            follower.synced = False
    return server, follower


@pytest.mark.parametrize(
    "end", [[], [KubeError("the watch broke")], [KubeError("too old", 410)], [KeyError("metadata")]]
)
def test_whatever_ends_a_watch_all_is_read_again(end: list[Exception]) -> None:
    server, follower = follow([("DELETED", "m-0", "150"), *end], [("ADDED", "m-1", "170")])
    assert (server.lists, server.began) == (2, ["100", "200"])
    assert follower.values() == {"m-0": "list", "m-1": "170"}
    assert follower.synced


class Ended(Exception):  # noqa: N818
    """Ends a loop that has no end."""


class Failing(Follower[str]):
    """Fails as it is told."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.log, self.clock = list[str](), FakeClock()
        super().__init__(Watched(), "/api/v1/nodes", str, self.log.append, clock=self.clock)  # type: ignore[arg-type]
        self.synced = True
        self.outcomes = list(outcomes)
        self.seen: list[bool] = []

    def follow_once(self) -> None:
        self.seen.append(self.synced)
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.synced = True


def test_a_copy_that_is_not_kept_up_to_date_proves_nothing() -> None:
    for error in (KubeError("no answer"), KubeError("forbidden", 403), KeyError("items"), PermissionError("ca.crt")):
        stream = Failing(error, None, Ended())
        with pytest.raises(Ended):
            stream.run()
        assert stream.seen == [True, False, True], error
        assert stream.log[0].startswith("waiting for /api/v1/nodes of the API server")
