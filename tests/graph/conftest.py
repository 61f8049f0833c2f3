"""The whole program under the recording monitor."""

from __future__ import annotations

import pytest

from cli.recording import Recording, record
from tests import stacks


@pytest.fixture(scope="session", params=["dev", "existing"])
def recording(request: pytest.FixtureRequest) -> Recording:
    """What the program registers for the committed development stack, and for one on a foreign cluster."""
    return record(getattr(stacks, request.param)(), stack=request.param)
