"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.shared import made_once

# How long an example takes says something about the machine, not about the code.
settings.register_profile("slurmstack", deadline=None)
settings.load_profile("slurmstack")

# Checks of a worker run in forked children, which close what they do not need. gRPC's own threads, which a test of the
# cloud has left in this process, would go on in them after the fork and abort them. No program of ours forks with gRPC.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# The libraries are half a million objects that live until the end: to look for garbage among them as often as Python
# does unasked takes a third of a recording of the program.
gc.set_threshold(100_000, 20, 20)

LEAST_WORKERS = 8
"""Side by side at least (`-n auto`), as most of the tests with daemons wait for them; measured on two cores."""

_VERSION = re.compile(r"\[(?:[^\]]*-)?(\d\d\.\d\d)(?:-[^\]]*)?\]$")


class Pieces(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    """One worker runs the tests of a file for one version of Slurm in one piece: they share daemons.

    pytest-xdist's own `loadgroup` is meant for that, and does not see any group with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        version = _VERSION.search(nodeid)
        return f"{nodeid.partition('::')[0]} {version[1] if version else ''}"


def pytest_xdist_auto_num_workers() -> int:
    """How many workers `-n auto` starts."""
    return max(LEAST_WORKERS, os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Pieces:
    """Take the place of whatever `--dist` asks for: tests of one file cannot be apart."""
    return Pieces(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with daemons begin first: they take longest."""
    items.sort(key=lambda item: "tests/slurm/" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Nobody looks for garbage in what is loaded by now: it lives until the end."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_directory() -> Iterator[None]:
    """A test leaves the working directory as it was: the next one may name its files from it."""
    before = Path.cwd()
    yield
    assert Path.cwd() == before


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prometheus' own tool."""
    return _of_debian("prometheus", "promtool", tmp_path_factory)


@pytest.fixture(scope="session")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of Alertmanager. Debian's reads its templates below /usr/share, where one that is only unpacked has
    them in a mount namespace of its own."""
    program = Path(_of_debian("prometheus-alertmanager", "prometheus-alertmanager", tmp_path_factory))
    if program.is_relative_to("/usr"):
        return [str(program)]
    shares = program.parents[1] / "share"
    return ["unshare", "--mount", "sh", "-c", f'mount --bind {shares} /usr/share; exec {program} "$@"', "alertmanager"]


def _of_debian(package: str, program: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The machine's own program, or else the one in Debian's package, which is not installed."""
    if found := shutil.which(program):
        return found

    def fetch(place: Path) -> None:
        subprocess.run(["apt-get", "download", "-q", package], cwd=place, check=True, capture_output=True)
        [archive] = place.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)

    return str(made_once(tmp_path_factory, package, fetch) / "usr/bin" / program)
