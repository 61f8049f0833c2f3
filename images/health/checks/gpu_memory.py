"""gpu-memory: uncorrectable memory errors, and bad memory that waits for a reset or can no longer be replaced.

What is a fault follows NVIDIA's "GPU Memory Error Management" (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/)
and "Dynamic Page Retirement" (https://docs.nvidia.com/deploy/dynamic-page-retirement/): a pending remapping or
retirement takes effect at the next reset; a failed remapping means that the GPU has to be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Thresholds
from images.health.nvidia import smi
from images.health.verdict import UnknownError, fail, not_checked, ok, or_not_checked, worst

NAME: Final = "gpu-memory"

ALLOWED_UNCORRECTED: Final = 0.0
"""Uncorrectable errors since the driver was loaded or the GPU reset. After the first one a reset is due."""

_REMAPPED: Final = ("remapped_rows.pending", "remapped_rows.failure")


def remapped(runner: Runner, reading: smi.Reading) -> dict[str, dict[str, str]]:
    """GPU's UUID -> state of its remapped rows, for drivers that tell it only if asked on its own.

    Empty where no GPU remaps rows (before Ampere). Raises UnknownError.
    """
    if not reading.unknown_fields.intersection(_REMAPPED):
        return {}
    wanted = ",".join(["gpu_uuid", *_REMAPPED])
    answer = smi.call(runner, f"--query-remapped-rows={wanted}", "--format=csv,noheader,nounits")
    if not answer.ok:
        return {}  # a driver from before there was such a thing
    rows = [[value.strip() for value in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
    if any(len(row) != 1 + len(_REMAPPED) for row in rows):
        raise UnknownError(f"{smi.TOOL} says something unexpected of remapped rows")
    return {row[0]: dict(zip(_REMAPPED, row[1:], strict=True)) for row in rows}


def judge(gpu: smi.Gpu, allowed: float) -> Result:
    """One GPU's memory."""
    uncorrected = gpu.number("ecc.errors.uncorrected.volatile.total")
    corrected = gpu.number("ecc.errors.corrected.volatile.total")
    pending = gpu.yes("remapped_rows.pending")
    failure = gpu.yes("remapped_rows.failure")
    retiring = gpu.yes("retired_pages.pending")
    if uncorrected is None and pending is None and failure is None and retiring is None:
        return not_checked(f"counts no memory errors (ECC: {gpu.text('ecc.mode.current') or 'none'})")
    texts = []
    if failure:
        texts.append("replacing a bad memory row failed: the GPU has to be replaced")
    if pending or retiring:
        texts.append("bad memory is taken out of use at the next reset")
    if uncorrected is not None and uncorrected > allowed:
        texts.append(f"{uncorrected:.0f} uncorrectable memory errors since the last reset, {allowed:.0f} allowed")
    label = f'{{gpu="{gpu.index}"}}'
    figures = {"uncorrected": uncorrected, "corrected": corrected}
    values = {f"gpu_memory_errors_{kind}{label}": value for kind, value in figures.items() if value is not None}
    if texts:
        return fail("hardware", " and ".join(texts), values)
    return ok(**values)


@or_not_checked
def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Look at all GPUs."""
    allowed = thresholds.get(NAME, "uncorrected", ALLOWED_UNCORRECTED)
    reading = smi.read(node, runner)
    rows: Mapping[str, Mapping[str, str]] = {}
    found = []
    try:
        rows = remapped(runner, reading)
    except UnknownError as error:
        found.append(not_checked(f"remapped rows: {error}"))

    def one(gpu: smi.Gpu) -> Result:
        more = rows.get(gpu.fields["uuid"], {})
        return judge(smi.Gpu(index=gpu.index, fields={**gpu.fields, **more}), allowed)

    return worst([smi.judged(node, reading, one), *found])


CHECK: Final = Check(
    name=NAME,
    summary="uncorrectable memory errors (ECC), remapped rows and retired pages of the GPUs",
    run=run,
    hardware="gpu",
    seconds=smi.CHECK_SECONDS + smi.SECONDS,  # older drivers have to be asked twice
)
