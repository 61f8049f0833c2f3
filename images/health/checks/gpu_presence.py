"""gpu-presence: all GPUs are there, and the driver does not ask to reset one.

What the driver asks for after an error (Xid) it tells by itself, from R570 on; NVIDIA's support of the branches before
ended in June 2026. What else the kernel's log has of GPUs is DCGM's to judge (docs/health.md, "Your own checks").

The names of fields are those of `nvidia-smi --help-query-gpu` (driver R580). A driver before R570 refuses the whole
question for the one name that it does not know, and is asked again without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.command import Result as Answer
from images.common.health.contract import (
    Check,
    Node,
    Result,
    UnknownError,
    fail,
    not_checked,
    ok,
    warn,
    worst,
)

NAME: Final = "gpu-presence"

TOOL: Final = "nvidia-smi"

SECONDS: Final = 8.0
"""For one call. Without persistence mode the driver initializes every GPU for it, about one second each."""

CHECK_SECONDS: Final = 12.0
"""For the check, which may ask twice."""

_ACTION: Final = "gpu_recovery_action"
_FIELDS: Final = f"index,pci.bus_id,name,{_ACTION}"

# Texts and not compiled patterns: a program that runs twice a minute, and mostly on healthy GPUs, would compile them
# for nothing.
_NO_HANDLE: Final = r"(?i)Unable to determine the device handle for GPU.*|.*GPU is lost.*"
_NO_DRIVER: Final = r"(?i)couldn't communicate with the NVIDIA driver|Driver/library version mismatch|Driver Not Loaded"
_PLACE: Final = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_NO_DEVICES: Final = "No devices were found"

LOST: Final = frozenset({"gpu is lost", "gpu requires reset"})
"""What stands in the fields of a GPU that nobody can use any more."""

_CALM: Final = frozenset({"none", "n/a", "not supported", "not available", ""})
"""A driver that asks for nothing, or does not tell."""
_GRAVE: Final = ("reset", "reboot", "flr")
"""Words of the recovery actions after which nobody can use the GPU: "GPU Reset", "Node Reboot", "Drain and Reset" of
nvidia-smi; "PF FLR" and "OS Reboot" are other drivers' words. The remaining one, "Drain P2P", is about links only."""


class NoDriverError(UnknownError):
    """nvidia-smi runs, and the NVIDIA driver does not, or not the one that it fits."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, as nvidia-smi describes it."""

    index: int
    lost: str = ""
    """What it says in place of its values, if nobody can use it."""
    action: str = ""
    """What the driver says has to be done before it works again."""


def read(runner: Runner) -> tuple[list[Gpu], list[str]]:
    """The GPUs, and what nvidia-smi says of those that it could not open. Raises UnknownError."""
    answer = _ask(runner, _FIELDS)
    if answer.code != 0 and f'Field "{_ACTION}" is not a valid field to query' in answer.stdout + answer.stderr:
        answer = _ask(runner, _FIELDS.removesuffix(f",{_ACTION}"))
    gpus: list[Gpu] = []
    lost = [line.strip() for line in answer.stderr.splitlines() if re.match(_NO_HANDLE, line.strip())]
    odd = []
    for line in map(str.strip, answer.stdout.splitlines()):
        if (gpu := _gpu(line)) is not None:
            gpus.append(gpu)
        elif re.match(_NO_HANDLE, line):
            lost.append(line)
        elif line and _NO_DEVICES not in line:
            odd.append(line)
    if not gpus and re.search(_NO_DRIVER, answer.stdout + answer.stderr):
        raise NoDriverError(answer.message)
    if odd:
        raise UnknownError(f"{TOOL} says something unexpected: {odd[0][:80]}")
    if (answer.code != 0 or not gpus) and not lost and not has_none(answer):
        raise UnknownError(f"{TOOL} ended with {answer.code}: {answer.message[:120]}")
    return gpus, lost


def _ask(runner: Runner, fields: str) -> Answer:
    answer = runner([TOOL, f"--query-gpu={fields}", "--format=csv,noheader,nounits"], timeout=SECONDS)
    if answer.code == TIMED_OUT:
        raise UnknownError(f"{TOOL} did not end in {SECONDS:g} s")
    if answer.code == NO_PROGRAM:
        raise UnknownError(f"there is no {TOOL}")
    return answer


def _gpu(line: str) -> Gpu | None:
    """None for a line that describes no GPU. One that cannot tell its place may only say that it is lost."""
    values = [value.strip().removeprefix("[").removesuffix("]").strip() for value in line.split(",")]
    if len(values) not in {3, 4} or not re.fullmatch("[0-9]{1,4}", values[0]):
        return None
    if re.fullmatch(_PLACE, values[1]) is None and values[1].lower() not in LOST:
        return None
    return Gpu(
        index=int(values[0]),
        lost=next((value for value in values if value.lower() in LOST), ""),
        action=values[3] if len(values) > 3 else "",
    )


def says_lost(line: str) -> bool:
    """Whether a line is about a GPU that nobody can use any more."""
    return re.match(_NO_HANDLE, line.strip()) is not None or any(words in line.lower() for words in LOST)


def has_none(answer: Answer) -> bool:
    """Whether the driver works, and has no GPU."""
    return _NO_DEVICES in answer.stdout + answer.stderr


def _judge(gpu: Gpu) -> Result:
    if gpu.lost:
        return fail("hardware", f"GPU {gpu.index}: {gpu.lost}")
    if gpu.action.lower() in _CALM:
        return ok()
    is_grave = any(word in gpu.action.lower() for word in _GRAVE)
    return (fail if is_grave else warn)("hardware", f"GPU {gpu.index}: the driver asks for: {gpu.action[:40]}")


def run(node: Node, runner: Runner) -> Result:
    """How many GPUs there are, against how many the stack file names; and each one's own state."""
    if node.gpus <= 0:
        return not_checked("the stack file names no GPUs for this node")
    try:
        gpus, lost = read(runner)
    except NoDriverError as error:
        return fail("node", f"the NVIDIA driver does not work: {str(error)[:160]}")
    found = [_judge(gpu) for gpu in gpus]
    if len(gpus) < node.gpus or lost:
        why = "; ".join(text[:120] for text in lost)
        found.append(fail("hardware", f"{len(gpus)} of {node.gpus} GPUs are there" + (f": {why}" if why else "")))
    return worst(found)


# Not before a job: with all fields nvidia-smi takes longer than a prolog should.
CHECK: Final = Check(name=NAME, run=run, hardware="gpu", seconds=CHECK_SECONDS)
