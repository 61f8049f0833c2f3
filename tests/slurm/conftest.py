"""Fixtures for tests with real Slurm daemons. They need root and build the images first (cached afterwards)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from local import paths
from slurm.images import image_tag
from tests.slurm.cluster import ClusterFactory, require_images

VERSIONS = ("24.11", "26.05")

ONLY_CACHED = "--only-cached-images"
ONLY_VERSION = "--slurm-version"

one_version = pytest.mark.parametrize("slurm_version", VERSIONS[:1], indirect=True)
"""For what is the kernel's and our programs' alone. Where it begins with Slurm, another test of the file shows that it
does so with each version.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """For the gate, which builds images of the first version only, and for the long suite's stages."""
    parser.addoption(
        ONLY_CACHED,
        action="store_true",
        help=f"skip tests of versions of Slurm whose images are not built yet; those of {VERSIONS[0]} always are",
    )
    parser.addoption(ONLY_VERSION, choices=VERSIONS, help="run only the tests with this version of Slurm")


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


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which versions are run."""
    return [f"Slurm {version}: {reason}" for version, reason in left_out(config).items()]


def left_out(config: pytest.Config) -> dict[str, str]:
    """Versions whose tests are skipped, and why."""
    builds = {path.parent.name for path in paths.cache_images().glob("*/images.tar")}
    only_cached = config.getoption(ONLY_CACHED)
    absent = [version for version in VERSIONS[1:] if only_cached and image_tag(version) not in builds]
    return dict.fromkeys(absent, f"its images are not built yet, and {ONLY_CACHED} builds none")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs once for each version of Slurm, and what is in the gate; skip versions that are left out."""
    absent = left_out(config)
    for item in items:
        version = version_of(item)
        if "slurm_version" in getattr(item, "fixturenames", ()):
            item.add_marker("versions")
        mark = item.get_closest_marker("in_gate")
        if mark is not None and version in {VERSIONS[0], *mark.args}:
            item.add_marker("gate")
        if version in absent:
            item.add_marker(pytest.mark.skip(reason=f"Slurm {version}: {absent[version]}"))
    if (wanted := config.getoption(ONLY_VERSION)) is not None:
        others = [item for item in items if version_of(item) != wanted]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if version_of(item) == wanted]


def version_of(item: pytest.Item) -> str:
    """The version of Slurm that a test runs with."""
    call = getattr(item, "callspec", None)
    return str(call.params.get("slurm_version", VERSIONS[0])) if call is not None else VERSIONS[0]
