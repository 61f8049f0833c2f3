"""Fixtures for tests in guest machines. They build the images first (cached afterwards)."""

from __future__ import annotations

import pytest

from slurm.images import DEBIAN_SUITES
from tests.slurm.cluster import require_images

one_version = pytest.mark.parametrize("slurm_version", [*DEBIAN_SUITES][:1], indirect=True)
"""For what is the kernel's and our programs' alone, and the same with each version: a guest takes its time."""


@pytest.fixture(scope="session", params=[*DEBIAN_SUITES])
def slurm_version(request: pytest.FixtureRequest) -> str:
    """Each supported Slurm version, with its images built."""
    version: str = request.param
    require_images(version)
    return version
