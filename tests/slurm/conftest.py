"""Fixtures for tests with real Slurm daemons. They need root and build the images first (cached afterwards)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.slurm.cluster import ClusterFactory, require_images

VERSIONS = ("24.11", "26.05")

one_version = pytest.mark.parametrize("slurm_version", VERSIONS[:1], indirect=True)
"""For what is the kernel's and our programs' alone. Where it begins with Slurm, another test of the file shows that it
does so with each version.
"""


@pytest.fixture(scope="session", params=VERSIONS)
def slurm_version(request: pytest.FixtureRequest) -> str:
    """Each supported Slurm version, with its images built."""
    version: str = request.param
    require_images(version)
    return version


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    """Starts clusters that the tests of a file share: `slurm_cluster("24.11", workers=2, jail=True)`."""
    with ExitStack() as stack:
        yield ClusterFactory(stack, tmp_path_factory)


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    """The same for clusters that end with the test."""
    with ExitStack() as stack:
        yield ClusterFactory(stack, tmp_path_factory)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs once for each version of Slurm."""
    for item in items:
        if "slurm_version" in getattr(item, "fixturenames", ()):
            item.add_marker("versions")
