"""Memory errors of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_memory
from images.health.contract import Status, Thresholds
from tests.unit.images.health.gpus import ABSENT, DEFAULTS, GARBAGE, HANGS, REMAPPED, Smi, machine, node

UNCORRECTED = "ecc.errors.uncorrected.volatile.total"
NEWER = ["remapped_rows.correctable", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure"]


def remapped_rows(smi: Smi, pending: int = -1) -> Result:
    rows = [f"{row['uuid']}, {'Yes' if row['index'] == str(pending) else 'No'}, No\n" for row in smi.rows]
    return Result(code=0, stdout="".join(rows))


def test_gpus_without_errors_are_well_and_their_corrected_errors_counted(tmp_path: Path) -> None:
    smi = Smi("h100-8", {(2, "ecc.errors.corrected.volatile.total"): "12"})

    result = gpu_memory.run(node(tmp_path), machine(smi), DEFAULTS)

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values['gpu_memory_errors_corrected{gpu="2"}'] == 12
    assert result.values['gpu_memory_errors_uncorrected{gpu="2"}'] == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (UNCORRECTED, "2", "2 uncorrectable memory errors since the last reset, 0 allowed"),
        ("remapped_rows.pending", "Yes", "bad memory is taken out of use at the next reset"),
        ("retired_pages.pending", "Yes", "bad memory is taken out of use at the next reset"),
        ("remapped_rows.failure", "Yes", "replacing a bad memory row failed: the GPU has to be replaced"),
    ],
)
def test_bad_memory_is_a_fault_of_the_hardware(tmp_path: Path, field: str, value: str, message: str) -> None:
    smi = Smi("h100-8", {(1, field): value, (4, field): value})

    result = gpu_memory.run(node(tmp_path), machine(smi), DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", f"GPU 1, 4: {message}")


def test_a_site_may_allow_some_uncorrectable_errors(tmp_path: Path) -> None:
    runner = machine(Smi("h100-8", {(0, UNCORRECTED): "2"}))

    result = gpu_memory.run(node(tmp_path), runner, Thresholds({"gpu-memory": {"uncorrected": 2}}))

    assert result.status is Status.OK


def test_an_older_driver_is_asked_for_remapped_rows_on_their_own(tmp_path: Path) -> None:
    smi = Smi("h100-8", unknown=NEWER)

    well = gpu_memory.run(node(tmp_path / "1"), machine(smi, remapped=remapped_rows(smi)), DEFAULTS)
    bad = gpu_memory.run(node(tmp_path / "2"), machine(smi, remapped=remapped_rows(smi, pending=7)), DEFAULTS)

    assert well.status is Status.OK
    assert (bad.status, bad.message) == (Status.FAIL, "GPU 7: bad memory is taken out of use at the next reset")


@pytest.mark.parametrize("answer", [HANGS, GARBAGE], ids=["hangs", "garbage"])
def test_remapped_rows_that_nobody_tells_are_not_checked(tmp_path: Path, answer: Result) -> None:
    result = gpu_memory.run(node(tmp_path), machine(Smi("h100-8", unknown=NEWER), remapped=answer), DEFAULTS)

    assert result.status is Status.NOT_CHECKED
    assert result.message.startswith("remapped rows: nvidia-smi ")


def test_a_driver_from_before_remapped_rows_is_judged_by_the_rest(tmp_path: Path) -> None:
    refused = Result(code=2, stdout="Invalid combination of input arguments.\n")
    runner = machine(Smi("t4-1", unknown=NEWER), remapped=refused)

    assert gpu_memory.run(node(tmp_path, gpus=1), runner, DEFAULTS).status is Status.OK
    assert runner.ran(REMAPPED)


def test_a_gpu_that_counts_no_errors_is_not_checked(tmp_path: Path) -> None:
    result = gpu_memory.run(node(tmp_path, gpus=2), machine(Smi("rtx4090-2")), DEFAULTS)

    assert (result.status, result.message) == (Status.NOT_CHECKED, "GPU 0, 1: counts no memory errors (ECC: none)")


def test_a_fault_of_one_gpu_is_told_though_another_is_missing(tmp_path: Path) -> None:
    smi = Smi("h100-8", {(1, UNCORRECTED): "1"}, gone=[5])

    result = gpu_memory.run(node(tmp_path), machine(smi), DEFAULTS)

    assert (result.status, result.fault) == (Status.FAIL, "hardware")
    assert "nvidia-smi describes 7 GPUs of 8" in result.message


def test_a_missing_gpu_is_not_well(tmp_path: Path) -> None:
    assert gpu_memory.run(node(tmp_path), machine(Smi("h100-8", gone=[5])), DEFAULTS).status is Status.NOT_CHECKED


@pytest.mark.parametrize("value", ["[Unknown Error]", "many", "nan", "[Insufficient Permissions]"])
def test_a_field_that_holds_no_number_is_not_checked(tmp_path: Path, value: str) -> None:
    result = gpu_memory.run(node(tmp_path), machine(Smi("h100-8", {(3, UNCORRECTED): value})), DEFAULTS)

    assert result.status is Status.NOT_CHECKED
    assert result.message.startswith(f"GPU 3: {UNCORRECTED}: ")


@pytest.mark.parametrize("answer", [HANGS, ABSENT, GARBAGE], ids=["hangs", "absent", "garbage"])
def test_without_an_answer_nobody_knows(tmp_path: Path, answer: Result) -> None:
    assert gpu_memory.run(node(tmp_path), machine(answer), DEFAULTS).status is Status.NOT_CHECKED
