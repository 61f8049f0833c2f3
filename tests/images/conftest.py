"""Fixtures for tests with a real registry and real image tools. They need root, for stores of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.images import ROLES
from tests.images.registry import Registry, install_buildah, install_podman

INSTALL = {"buildah": install_buildah, "podman": install_podman}


@pytest.fixture(scope="module", params=INSTALL)
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real tool, first on the PATH for as long as a module's tests run: others look for the local cluster's own."""
    if os.geteuid() != 0:
        pytest.skip("an image store of one's own in a mount namespace needs root")
    directory = tmp_path_factory.mktemp(request.param)
    INSTALL[request.param](directory / "bin", directory / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory / 'bin'}:{os.environ['PATH']}")
        yield request.param


@pytest.fixture
def start_registry(tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """Starts registries that end with the test."""
    started: list[Registry] = []

    def start(*, with_password: bool = False) -> Registry:
        registry = Registry(tmp_path / f"registry-{len(started)}", with_password=with_password)
        started.append(registry)
        registry.start()
        return registry

    yield start
    for registry in started:
        registry.stop()


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Containerfile with the targets of the real one and nothing in them, so that it builds without a network."""
    directory = tmp_path_factory.mktemp("sources")
    text = "ARG BASE=docker.io/library/debian:trixie-slim\nFROM ${BASE} AS common\nCOPY common.txt /\n"
    (directory / "common.txt").write_text("in every image\n")
    for role in ROLES:
        text += f'FROM common AS {role}\nCOPY {role}.txt /\nCMD ["/{role}"]\n'
        if role == "jail":
            text += "ARG JAIL_PACKAGES=\nARG JAIL_CUDA=\nLABEL besides=${JAIL_CUDA:+cuda/}${JAIL_PACKAGES}\n"
        (directory / f"{role}.txt").write_text(f"{role}\n")
    (directory / "Containerfile").write_text(text)
    return directory
