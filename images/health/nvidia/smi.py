"""What nvidia-smi says about the node's GPUs.

Each call of nvidia-smi costs tens of milliseconds of CPU time, and seconds where the driver has to wake the GPUs up.
So the answer lies in a file of the state directory: a check that is killed takes its memory along.

The names of fields are those of `nvidia-smi --help-query-gpu` (driver R580). An older driver refuses the whole question
for one name that it does not know, and says which; that name is then left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.command import Result as Answer
from images.common.health.contract import Node
from images.health.state import only_me, recall, remember
from images.health.tools import CANNOT_RUN
from images.health.verdict import UnknownError

TOOL: Final = "nvidia-smi"

SECONDS: Final = 8.0
"""For one call. Without persistence mode the driver initializes every GPU for it, about one second each."""

CHECK_SECONDS: Final = 12.0
"""Time limit of a check that asks once, or waits for the answer to another check, and some."""

FRESH_SECONDS: Final = 15.0
"""An answer of this age serves the other checks of the same run; the next run, 30 s later, asks anew."""

FIELDS: Final = ("index", "uuid", "pci.bus_id", "gpu_recovery_action", "name")

_NEEDED: Final = ("index", "uuid", "pci.bus_id", "name")

# Texts and not compiled patterns, as are those of the other modules here: a program that runs twice a minute, and
# mostly on healthy GPUs, would compile them for nothing.
_UNKNOWN_FIELD: Final = r'Field "([^"]+)" is not a valid field to query'
_NO_HANDLE: Final = r"(?i)Unable to determine the device handle for GPU.*|.*GPU is lost.*"
_NO_DRIVER: Final = r"(?i)couldn't communicate with the NVIDIA driver|Driver/library version mismatch|Driver Not Loaded"
_INDEX: Final = r"[0-9]{1,4}"
_PLACE: Final = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_NO_DEVICES: Final = "No devices were found"
_EXIT_NO_DRIVER: Final = 9
_EXIT_LOST: Final = 15
"""Exit codes that nvidia-smi(1) documents: "NVIDIA driver is not loaded", "The GPU has fallen off the bus or has
otherwise become inaccessible"."""

_NOTHING: Final = frozenset({"n/a", "not supported", "not available", ""})
"""What a GPU or driver says of a field that it does not have."""

LOST: Final = frozenset({"gpu is lost", "gpu requires reset"})
"""What stands in the fields of a GPU that nobody can use any more."""


class NoDriverError(UnknownError):
    """nvidia-smi runs, and the NVIDIA driver does not, or not the one that it fits."""


def _bare(value: str) -> str:
    return value.strip().removeprefix("[").removesuffix("]").strip()


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, as nvidia-smi describes it."""

    index: int
    fields: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """The field's text; None if this GPU or driver does not have it."""
        value = _bare(self.fields.get(name, "N/A"))
        return None if value.lower() in _NOTHING else value

    @property
    def is_lost(self) -> str:
        """What it says in place of its values, if nobody can use it; else empty."""
        return next((bare for value in self.fields.values() if (bare := _bare(value)).lower() in LOST), "")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One answer."""

    gpus: tuple[Gpu, ...] = ()
    lost: tuple[str, ...] = ()
    """What nvidia-smi says of GPUs that it could not open."""


def read(node: Node, runner: Runner) -> Reading:
    """Ask nvidia-smi, or take what another check has asked just before. Raises UnknownError."""
    with only_me(node, TOOL, waits=True):  # the others wait, and find its answer
        kept = recall(node, TOOL) if _is_fresh(node.state / f"{TOOL}.json") else {}
        if "stdout" not in kept:
            kept = _ask(node, runner)
            remember(node, TOOL, kept)
    return understand(kept)


def bus_addresses(node: Node) -> dict[str, int]:
    """PCI address as the kernel's log writes it (`0000:3b:00`) -> index, from the last answer of this boot, if any."""
    try:
        reading = understand(recall(node, TOOL))
    except UnknownError:
        return {}
    return {kernel_address(gpu.fields["pci.bus_id"]): gpu.index for gpu in reading.gpus}


def kernel_address(bus_id: str) -> str:
    """`00000000:3B:00.0`, as nvidia-smi writes it, or `0000:3B:00` -> `0000:3b:00`."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def call(runner: Runner, *options: str) -> Answer:
    """Run nvidia-smi. Raises UnknownError."""
    answer = runner([TOOL, *options], timeout=SECONDS)
    if why := explain(answer):
        raise UnknownError(why)
    return answer


def explain(answer: Answer) -> str:
    """Why there is no answer; empty if there is one, whatever it says."""
    whys = {TIMED_OUT: f"{TOOL} did not end in {SECONDS:g} s", NO_PROGRAM: f"there is no {TOOL}"}
    return whys.get(answer.code, answer.message if answer.code == CANNOT_RUN else "")


def about(indices: Sequence[int], message: str) -> str:
    """`GPU 0, 3: message`, or nothing if there is no message."""
    return f"GPU {', '.join(str(index) for index in indices)}: {message}" if message else ""


def understand(kept: Mapping[str, Any]) -> Reading:
    """What an answer says. Raises UnknownError."""
    try:
        answer = Answer(code=int(kept["code"]), stdout=str(kept["stdout"]), stderr=str(kept["stderr"]))
        fields = tuple(str(name) for name in kept["fields"])
    except (KeyError, TypeError, ValueError):
        raise UnknownError(str(kept.get("why", f"{TOOL} was not asked"))) from None
    if why := explain(answer):
        raise UnknownError(why)
    gpus, lost, odd = _lines(answer, fields)
    if not gpus and (answer.code == _EXIT_NO_DRIVER or re.search(_NO_DRIVER, answer.stdout + answer.stderr)):
        raise NoDriverError(answer.message)
    nothing = _NO_DEVICES in answer.stdout + answer.stderr
    if answer.code == _EXIT_LOST and not lost:
        lost, odd = [answer.message], []
    if odd:
        raise UnknownError(f"{TOOL} says something unexpected: {odd[0][:80]}")
    if (answer.code != 0 or not gpus) and not lost and not nothing:
        raise UnknownError(f"{TOOL} ended with {answer.code}: {answer.message[:120]}")
    return Reading(gpus=tuple(gpus), lost=tuple(lost))


def _lines(answer: Answer, fields: Sequence[str]) -> tuple[list[Gpu], list[str], list[str]]:
    """GPUs, what is said of lost ones, and lines of the standard output that are neither."""
    gpus, lost, odd = [], [], []
    for line in answer.stdout.splitlines():
        values = [value.strip() for value in line.split(",", maxsplit=len(fields) - 1)]
        named = dict(zip(fields, values, strict=False))
        if len(values) == len(fields) > 1 and re.fullmatch(_INDEX, values[0]) and _has_place(named):
            gpus.append(Gpu(index=int(values[0]), fields=named))
        elif re.match(_NO_HANDLE, line.strip()):
            lost.append(line.strip())
        elif line.strip() and _NO_DEVICES not in line:
            odd.append(line.strip())
    lost += [line.strip() for line in answer.stderr.splitlines() if re.match(_NO_HANDLE, line.strip())]
    if len({gpu.index for gpu in gpus}) < len(gpus):
        odd.append("one GPU twice")
    return gpus, lost, odd


def says_lost(line: str) -> bool:
    """Whether a line is about a GPU that nobody can use any more."""
    return re.match(_NO_HANDLE, line.strip()) is not None or any(words in line.lower() for words in LOST)


def has_none(answer: Answer) -> bool:
    """Whether the driver works, and has no GPU."""
    return _NO_DEVICES in answer.stdout + answer.stderr


def _has_place(fields: Mapping[str, str]) -> bool:
    """Whether it is a GPU that is described: one that cannot tell its place may only say that it is lost."""
    place = fields.get("pci.bus_id", "")
    return re.fullmatch(_PLACE, place) is not None or _bare(place).lower() in LOST


def _ask(node: Node, runner: Runner) -> dict[str, Any]:
    """Ask for all fields that this driver knows. What it does not know is remembered, before anything takes long."""
    kept = recall(node, "nvidia-fields").get("fields")
    fields = [str(name) for name in kept] if isinstance(kept, list) and kept else list(FIELDS)
    try:
        answer = call(runner, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        while refused := _refused(answer, fields):
            fields = [name for name in fields if name not in refused]
            remember(node, "nvidia-fields", {"fields": fields})
            answer = call(runner, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    except UnknownError as error:
        return {"stdout": None, "why": str(error)}
    return {"fields": fields, "code": answer.code, "stdout": answer.stdout, "stderr": answer.stderr}


def _refused(answer: Answer, fields: Sequence[str]) -> list[str]:
    if answer.code == 0:
        return []
    named = re.findall(_UNKNOWN_FIELD, answer.stdout + answer.stderr)
    return [name for name in dict.fromkeys(named) if name in fields and name not in _NEEDED]


def _is_fresh(path: Path) -> bool:
    try:
        return 0 <= time.time() - path.stat().st_mtime <= FRESH_SECONDS
    except OSError:
        return False
