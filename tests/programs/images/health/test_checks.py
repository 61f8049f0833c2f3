"""Checks with real programs, as a node runs them: an nvidia-smi and a dmesg that can be broken."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from images.common.health.contract import Result, Status
from images.health.checks import gpu_presence, gpu_xid
from images.health.runner import run_checks
from tests.fakes import gpu_tools
from tests.unit.images.health.worker import DATA, DEFAULTS, gpu_node

ROOT = Path(__file__).parents[4]


CHECKS = [gpu_presence.CHECK, gpu_xid.CHECK]


class Machine:
    """Eight GPUs that are well, and the programs that say so."""

    def __init__(self, path: Path) -> None:
        self.says, self.node = path / "says", gpu_node(path / "node")
        programs = path / "bin"
        programs.mkdir()
        self.says.mkdir()
        script = Path(gpu_tools.__file__).read_text(encoding="utf-8")
        for name in ("nvidia-smi", "dmesg"):
            (programs / name).write_text(f"#!{sys.executable} -IS\n{script}")
            (programs / name).chmod(0o755)
        self.programs = programs
        shutil.copy(DATA / "nvidia/h100-8.csv", self.says / "gpus.csv")
        shutil.copy(DATA / "kernel/quiet.log", self.says / "kernel.log")

    def change(self, name: str, old: str, new: str) -> None:
        path = self.says / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def look(self) -> dict[str, Result]:
        """One run."""
        return {name: outcome.result for name, outcome in run_checks(CHECKS, self.node, DEFAULTS).items()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine, with its programs on the PATH."""
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{machine.programs}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GPUS", str(machine.says))
    return machine


def failing(results: dict[str, Result]) -> dict[str, str]:
    assert {result.status for result in results.values()} <= {Status.OK, Status.FAIL}
    return {name: result.message for name, result in results.items() if result.status is Status.FAIL}


def test_a_machine_that_breaks_is_told_by_the_right_check_and_heals(machine: Machine) -> None:
    assert failing(machine.look()) == {}
    machine.change("gpus.csv", ", None,", ", GPU Reset,")
    assert failing(machine.look()) == {"gpu-presence": "GPU 0: the driver asks for: GPU Reset"}
    machine.change("gpus.csv", ", GPU Reset,", ", None,")
    shutil.copy(DATA / "kernel/fallen-off.log", machine.says / "kernel.log")
    assert set(failing(machine.look())) == {"gpu-xid"}
    (machine.says / "kernel.log").write_text("")  # emptied by an administrator
    assert failing(machine.look()) == {}
