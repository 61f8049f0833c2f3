"""Fixtures for tests in guest machines. They build the images first (cached afterwards)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.images import DEBIAN_SUITES
from tests.machine.machine import Machine
from tests.machine.pod import Pods
from tests.machine.rootfs import program_layers, root_file_systems
from tests.slurm.cluster import require_images

one_version = pytest.mark.parametrize("slurm_version", [*DEBIAN_SUITES][:1], indirect=True)
"""For what is the kernel's and our programs' alone, and the same with each version: a guest takes its time."""


@pytest.fixture(scope="session", params=[*DEBIAN_SUITES])
def slurm_version(request: pytest.FixtureRequest) -> str:
    """Each supported Slurm version, with its images built."""
    version: str = request.param
    require_images(version)
    return version


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the worker's image, for all tests of a file."""
    require_images("24.11")
    images, layers = root_file_systems("24.11", ["worker"]), program_layers("24.11", ["worker"])
    with Machine(images, layers=layers) as started:
        yield started


@pytest.fixture(scope="module")
def pods(machine: Machine) -> Pods:
    """Its pods."""
    return Pods(machine)
