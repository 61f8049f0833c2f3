"""gpu-presence: all GPUs are there, and the driver does not ask to reset one."""

from __future__ import annotations

from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Thresholds
from images.health.nvidia import smi
from images.health.verdict import fail, not_checked, ok, or_not_checked, warn, worst

NAME: Final = "gpu-presence"

_CALM: Final = "none"
_GRAVE: Final = ("reset", "reboot", "flr")
"""Words of the recovery actions after which nobody can use the GPU: "GPU Reset", "Node Reboot", "Drain and Reset" of
nvidia-smi; "PF FLR" and "OS Reboot" are other drivers' words. The remaining one, "Drain P2P", is about links only."""


def recovery(action: str) -> Result:
    """What the driver says has to be done before the GPU works again."""
    if action.lower() == _CALM:
        return ok()
    grave = any(word in action.lower() for word in _GRAVE)
    return (fail if grave else warn)("hardware", f"the driver asks for: {action[:40]}")


def _judge(gpu: smi.Gpu) -> Result:
    if gpu.is_lost:
        return fail("hardware", gpu.is_lost)
    action = gpu.text("gpu_recovery_action")
    return ok() if action is None else recovery(action)


def count(node: Node, reading: smi.Reading) -> Result:
    """How many GPUs there are, against how many there should be; and each one's own state."""
    results = [(gpu.index, _judge(gpu)) for gpu in reading.gpus]
    found = [
        Result(status=result.status, message=smi.about([index], result.message), fault=result.fault)
        for index, result in results
    ]
    usable = sum(not gpu.is_lost for gpu in reading.gpus)
    if len(reading.gpus) < node.gpus:
        why = f": {'; '.join(text[:120] for text in reading.lost)}" if reading.lost else ""
        message = f"{len(reading.gpus)} of {node.gpus} GPUs are there{why}"
        found.append(fail("hardware", message))
    elif reading.lost:
        message = f"more GPUs than the stack file names, but: {'; '.join(text[:120] for text in reading.lost)}"
        found.append(warn("hardware", message))
    values = {"gpus_usable": float(usable), "gpus_expected": float(node.gpus)}
    return worst([*found, ok(**values)])


@or_not_checked
def run(node: Node, runner: Runner, _thresholds: Thresholds) -> Result:
    """Look for the GPUs that the stack file names."""
    if node.gpus <= 0:
        return not_checked("the stack file names no GPUs for this node")
    try:
        reading = smi.read(node, runner)
    except smi.NoDriverError as error:
        return fail("node", f"the NVIDIA driver does not work: {str(error)[:160]}")
    return count(node, reading)


# Not before a job: with all fields nvidia-smi takes longer than a prolog should.
CHECK: Final = Check(
    name=NAME,
    summary="all GPUs of the node are there, and the driver asks for no reset",
    run=run,
    hardware="gpu",
    seconds=smi.CHECK_SECONDS,
)
