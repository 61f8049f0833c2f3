"""The type of GPUs that a node registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.worker.gres import fitting_gres


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    for number in range(2):
        directory = tmp_path / f"0000:0{number}:00.0"
        directory.mkdir()
        (directory / "information").write_text(f"Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t {number}\n")
    return tmp_path


def test_a_type_that_the_driver_knows_stays(gpus: Path) -> None:
    log: list[str] = []

    assert fitting_gres("CPUs=2 Gres=gpu:h100:2 Feature=x", log.append, gpus) == "CPUs=2 Gres=gpu:h100:2 Feature=x"
    assert log == []


def test_a_type_that_would_drain_the_node_is_left_out_and_told(gpus: Path) -> None:
    log: list[str] = []

    assert fitting_gres("CPUs=2 Gres=gpu:h200:2 Feature=x", log.append, gpus) == "CPUs=2 Gres=gpu:2 Feature=x"
    assert "nvidia_h100_80gb_hbm3, not h200" in log[0]


@pytest.mark.parametrize("conf", ["CPUs=2 Gres=gpu:2", "CPUs=2"])
def test_other_nodes_are_left_alone(conf: str, gpus: Path) -> None:
    assert fitting_gres(conf, print, gpus) == conf


def test_a_machine_whose_driver_is_not_there_yet_keeps_what_the_stack_file_says(tmp_path: Path) -> None:
    assert fitting_gres("Gres=gpu:h100:8", print, tmp_path / "none") == "Gres=gpu:h100:8"
