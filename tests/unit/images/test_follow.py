"""Following the API server: an old copy proves nothing."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from images.common.kubernetes import Follower, KubeError
from tests.fakes.commands import FakeClock


class Ended(Exception):  # noqa: N818
    """Ends a loop that has no end."""


class Failing(Follower[str]):
    """Fails as it is told."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.log, self.clock = list[str](), FakeClock()
        super().__init__(Mock(), "/api/v1/nodes", str, self.log.append, clock=self.clock)
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
