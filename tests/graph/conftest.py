"""The whole program under the recording monitor. No test here starts a process or sleeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph.nebius_recordings import STACKS
from tests.graph.objects import everything
from tests.in_process import in_process
from tests.recordings import record

__all__ = ["in_process"]


@pytest.fixture(scope="session", autouse=True)
def _local_cluster_at_its_usual_place() -> Iterator[None]:
    """The recorded graphs have its directory, wherever this machine keeps its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURMSTACK_LOCAL_DIR", raising=False)
        yield


@pytest.fixture(scope="session", params=["dev", "existing", "everything", *STACKS])
def recording(request: pytest.FixtureRequest) -> Recording:
    """What the program registers for the committed stacks, for some on a foreign cluster, and for all that a cloud can
    be asked for."""
    make = everything if request.param == "everything" else getattr(stacks, request.param)
    return record(make(), stack=request.param)


@pytest.fixture(scope="session", params=STACKS)
def made(request: pytest.FixtureRequest) -> Recording:
    """What the program registers for stacks on Nebius."""
    return record(getattr(stacks, request.param)(), stack=request.param)


@pytest.fixture(scope="session")
def full() -> Recording:
    """What it registers for the stack with all that can be asked for."""
    return record(stacks.nebius_full(), stack="test")
