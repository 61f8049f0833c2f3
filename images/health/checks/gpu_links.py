"""gpu-links: the GPUs' links to the machine (PCIe) and to each other (NVLink)."""

from __future__ import annotations

from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Thresholds
from images.health.nvidia import nvlink, smi
from images.health.state import held_for
from images.health.verdict import UnknownError, fail, not_checked, ok, or_not_checked, warn, worst

NAME: Final = "gpu-links"

NARROW_SECONDS: Final = 20.0
"""A PCIe link that has been too narrow for so long, in every look, is a fault; before that a warning. A link is
trained anew when a GPU leaves a power-saving state, and may be seen in between."""

AS_THE_BEST: Final = -1.0
"""For the number of active NVLinks: as many as the best GPU of the same model on the node has."""

ALLOWED_NVLINK_ERRORS: Final = 0.0
"""Per GPU and kind, in an hour."""

_AWAKE: Final = "P0"
"""In the other performance states a GPU may slow its PCIe link down to save power, and not each type does
("These may be reduced when the GPU is not in use", says `nvidia-smi --help-query-gpu`)."""

_FABRIC_READY: Final = "completed"


def too_slow(gpu: smi.Gpu, thresholds: Thresholds) -> tuple[str, str]:
    """What is wrong with the width, and with the generation, of an awake GPU's PCIe link; empty if nothing.

    Compared with the most that this GPU can have in this machine, as the driver says, or with the site's own numbers.
    Raises UnknownError.
    """
    if gpu.text("pstate") != _AWAKE:
        return "", ""
    width, generation = gpu.number("pcie.link.width.current"), gpu.number("pcie.link.gen.gpucurrent")
    lanes = thresholds.get(NAME, "pcie_width", gpu.number("pcie.link.width.max") or 0.0)
    best = thresholds.get(NAME, "pcie_generation", gpu.number("pcie.link.gen.max") or 0.0)
    narrow = f"PCIe has {width:.0f} of {lanes:.0f} lanes" if width is not None and width < lanes else ""
    old = f"PCIe runs at generation {generation:.0f} of {best:.0f}" if generation is not None else ""
    return narrow, old if generation is not None and generation < best else ""


def judge(gpu: smi.Gpu, thresholds: Thresholds, narrow_seconds: float, *, alone: bool) -> Result:
    """One GPU's PCIe link and its state in the NVLink fabric; `alone`: there is no other GPU to talk to."""
    width = gpu.number("pcie.link.width.current")
    fabric = gpu.text("fabric.state")
    if width is None and fabric is None:
        return not_checked("tells nothing of its PCIe link")
    values = {} if width is None else {f'gpu_pcie_lanes{{gpu="{gpu.index}"}}': width}
    narrow, old = too_slow(gpu, thresholds)
    found = [ok(**values)]
    # `state  Completed` is what some drivers print
    if fabric is not None and not fabric.lower().endswith(_FABRIC_READY):
        message = f"not part of the NVLink fabric: {fabric[:40]}"
        found.append((warn if alone else fail)("node", message))
    if narrow:
        needed = thresholds.get(NAME, "narrow_seconds", NARROW_SECONDS)
        found.append((fail if narrow_seconds >= needed else warn)("hardware", narrow))
    if old:
        found.append(warn("hardware", old))
    return worst(found)


@or_not_checked
def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Look at all GPUs' PCIe links, and at the NVLinks where there is more than one GPU."""
    reading = smi.read(node, runner)
    narrow = held_for(node, NAME, [gpu.fields["uuid"] for gpu in reading.gpus if _is_narrow(gpu, thresholds)])

    def one(gpu: smi.Gpu) -> Result:
        return judge(gpu, thresholds, narrow.get(gpu.fields["uuid"], 0.0), alone=node.gpus <= 1)

    found = [smi.judged(node, reading, one)]
    if len(reading.gpus) > 1:
        found += _nvlinks(node, runner, thresholds, len(reading.gpus))
    return worst(found)


def _is_narrow(gpu: smi.Gpu, thresholds: Thresholds) -> bool:
    try:
        return bool(too_slow(gpu, thresholds)[0])
    except UnknownError:
        return False  # judged as not checked


def _nvlinks(node: Node, runner: Runner, thresholds: Thresholds, gpus: int) -> list[Result]:
    try:
        links = nvlink.status(runner)
    except UnknownError as error:
        return [not_checked(f"NVLink: {error}")]
    found = nvlink.judge(links, thresholds.get(NAME, "nvlinks", AS_THE_BEST))
    if len(links) < gpus:
        found.append(not_checked(f"NVLink: {smi.TOOL} tells of {len(links)} GPUs of {gpus}"))
    if any(each.active for each in links):
        found += nvlink.errors(node, runner, thresholds.get(NAME, "nvlink_errors", ALLOWED_NVLINK_ERRORS))
    return found


CHECK: Final = Check(
    name=NAME,
    summary="width and generation of the GPUs' PCIe links, active NVLinks and their errors",
    run=run,
    hardware="gpu",
    seconds=smi.CHECK_SECONDS + 2 * smi.SECONDS,  # for the state of the NVLinks and for their counters
)
