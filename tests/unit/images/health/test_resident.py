"""The resident process, and the program in C that slurmd starts, which asks it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from images.health import alone, resident

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "make"))), reason="no C compiler here; the images' own build compiles and tests it"
)


def test_without_it_the_program_does_its_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/libexec/slurmstack/health-alone", "prolog"])
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": lambda: 5})
    assert alone.main() == 5


def test_the_periodic_run_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["health-alone", "periodic"])
    monkeypatch.setattr(resident, "PROGRAMS", {"periodic": lambda: 0})
    started: list[str] = []
    monkeypatch.setattr(resident, "start", started.append)
    assert alone.main() == 0
    assert started == [alone.SOCKET]


@pytest.mark.parametrize("gpus", [False, True])
def test_only_a_node_without_checks_around_jobs_is_called_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: bool
) -> None:
    monkeypatch.setattr(resident, "pod_environment", lambda: {"NODE_CONF": "CPUs=2 Gres=gpu:8" if gpus else "CPUs=2"})
    plain = tmp_path / "plain"
    plain.touch()
    resident.Resident(tmp_path / "socket")._say_whether_plain()
    assert plain.exists() is not gpus
