"""gpu-presence: all GPUs are there, and the driver does not ask to reset one."""

from __future__ import annotations

from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Status, Thresholds, not_checked, worst
from images.health.nvidia import smi

NAME: Final = "gpu-presence"

_CALM: Final = "none"
_GRAVE: Final = ("reset", "reboot", "flr")
"""Words of the recovery actions after which nobody can use the GPU: "GPU Reset", "Node Reboot", "Drain and Reset" of
nvidia-smi; "PF FLR" and "OS Reboot" are other drivers' words. The remaining one, "Drain P2P", is about links only."""


def recovery(action: str) -> Result:
    """What the driver says has to be done before the GPU works again."""
    if action.lower() == _CALM:
        return Result(status=Status.OK)
    grave = any(word in action.lower() for word in _GRAVE)
    status = Status.FAIL if grave else Status.WARN
    return Result(status=status, message=f"the driver asks for: {action[:40]}", fault="hardware")


def _judge(gpu: smi.Gpu) -> Result:
    if gpu.is_lost:
        return Result(status=Status.FAIL, message=gpu.is_lost, fault="hardware")
    action = gpu.text("gpu_recovery_action")
    return Result(status=Status.OK) if action is None else recovery(action)


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
        found.append(Result(status=Status.FAIL, message=message, fault="hardware"))
    elif reading.lost:
        message = f"more GPUs than the stack file names, but: {'; '.join(text[:120] for text in reading.lost)}"
        found.append(Result(status=Status.WARN, message=message, fault="hardware"))
    values = {"gpus_usable": float(usable), "gpus_expected": float(node.gpus)}
    return worst([*found, Result(status=Status.OK, values=values)])


def run(node: Node, runner: Runner, _thresholds: Thresholds) -> Result:
    """Look for the GPUs that the stack file names."""
    if node.gpus <= 0:
        return not_checked("the stack file names no GPUs for this node")
    try:
        reading = smi.read(node, runner)
    except smi.NoDriverError as error:
        return Result(status=Status.FAIL, message=f"the NVIDIA driver does not work: {str(error)[:160]}", fault="node")
    except smi.UnansweredError as error:
        return not_checked(str(error))
    return count(node, reading)


# Not before a job: with all fields nvidia-smi takes longer than a prolog should.
CHECK: Final = Check(
    name=NAME,
    summary="all GPUs of the node are there, and the driver asks for no reset",
    contexts=frozenset({"periodic"}),
    run=run,
    hardware="gpu",
    seconds=smi.CHECK_SECONDS,
)
