"""gpu-xid: errors in the kernel's log after which the NVIDIA driver, or NVIDIA's catalogue, wants a GPU reset.

One holds until one of these: the machine restarts (its log is empty then), the driver says that nothing is left to
recover (Xid 154 to "None", after a reset), or an administrator who has reset the GPU empties the log with
`dmesg --clear`. It also holds when newer lines have pushed it out of the log, for which the check remembers it; a pod
that restarts forgets that. All other Xids are an application's doing, or want nothing done at once. Forms of the lines,
with the log's own prefix of priority and time before them:

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:25:00 GPU-I:05): 95, ...                        one instance of a divided GPU (MIG)
    NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)
    NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 48 LTSSM Fault Up
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from images.common.command import Runner
from images.common.files import lines_in
from images.common.health.contract import Check, Node, Result, UnknownError, fail, worst
from images.health.checks.gpu_presence import addresses, kernel_address
from images.health.state import recall, remember

NAME: Final = "gpu-xid"

SECONDS: Final = 4.0
"""For reading the log, which is at most some megabytes of memory."""

_LONG: Final = 65_536
"""Characters: half of the smallest buffer that kernels of distributions have (CONFIG_LOG_BUF_SHIFT=17)."""

Faults = Mapping[str, Mapping[str, str]]
"""PCI address (`0000:3b:00`) or name of an NVSwitch (`nvswitch0`) -> number -> what the driver asks for, if it does."""

FAULTS: Final = frozenset(
    {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 156, 158, 167, 169, 171, 172}
)
"""Those for which NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, edition of October 2025, Xid 1 to 172) wants a
reset, a restart or a look at the machine. For 167, 169, 171 and 172 it names nothing; their names are as grave."""

NVLINK: Final = range(144, 151)
"""Errors of NVLink 5, which are such where the line says Fatal."""

RECOVERY: Final = "154"
"""The driver's own summary: what is to be done before the GPU works again."""

_STAMP: Final = r"(?:<\d+>)?\[\s*\d+\.\d{6}\]"
_PREFIX: Final = r"(?:<\d+>)?(?:\[\s*\d+\.\d+\]\s*)?"
_SWITCH: Final = _PREFIX + r"nvidia-(?P<bus>nvswitch\d+): SXid \([^)]*\): (?P<number>\d+), Fatal, .*"
_XID: Final = _PREFIX + (
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (?P<number>\d+)"
    r"(?:, (?P<text>.*))?"
)
_ACTION: Final = r"GPU recovery action changed from 0x\w+ \([^)]*\) to 0x\w+ \(([^)]*)\)"
_FATAL: Final = r"\bFatal\s+XC"
_P2P: Final = "drain p2p"
"""The only recovery action that leaves the GPU usable (for programs that do without its links)."""


def faults_in(lines: Iterable[str], before: Faults | None = None) -> Faults:
    """What is not settled; `before`: what was not before these lines."""
    found = {bus: dict(faults) for bus, faults in (before or {}).items()}
    for line in _records(lines):
        if "Xid (" not in line:
            continue
        if match := re.fullmatch(_SWITCH, line):
            found.setdefault(match["bus"], {})[match["number"]] = ""
        elif match := re.fullmatch(_XID, line):
            number, text = match["number"], match["text"] or ""
            of_gpu = found.setdefault(kernel_address(match["bus"]), {})
            if number == RECOVERY and (said := re.search(_ACTION, text)):
                action = said[1].strip()
                if action.lower() == "none":
                    of_gpu.clear()
                elif action.lower() == _P2P:
                    of_gpu.pop(RECOVERY, None)
                else:
                    of_gpu[RECOVERY] = f", the driver asks for: {action[:40]}"
            elif int(number) in FAULTS or (int(number) in NVLINK and re.search(_FATAL, text)):
                of_gpu[number] = ""
    return found


def _records(lines: Iterable[str]) -> Iterator[str]:
    """The first line of each record.

    A record may have text of a user's in it, with line breaks: the name of a file that a program ended in. The kernel
    then writes priority and time, in microseconds, before each of its lines. The driver's own have one line.
    """
    last = ""
    for line in lines:
        match = re.match(_STAMP, line)
        if match is None or match[0] != last:
            yield line
        last = match[0] if match else ""


def _with_remembered(node: Node, lines: list[str]) -> Faults:
    """What is in the log, and before it the faults that were in it once, unless somebody has emptied it.

    A log that has lost its oldest lines still ends in what was its last line at the run before; one that was emptied
    does not have that line any more. Nor has one that users have filled since, by programs that crash: that is long.
    """
    try:
        boot = (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = ""
    before = recall(node, NAME)
    still = before.get("boot") == boot and (before["last"] in lines or sum(map(len, lines)) >= _LONG)
    faults = faults_in(lines, before["faults"] if still else None)
    remember(node, NAME, {"boot": boot, "last": lines[-1] if lines else "", "faults": faults})
    return faults


def run(node: Node, runner: Runner) -> Result:
    """Read the log and judge what the driver wrote."""
    answer, gpus = runner(["dmesg", "--raw"], timeout=SECONDS), addresses(node)
    if not answer.ok:
        raise UnknownError(answer.message[:160])
    # The log is of all GPUs of the machine, those of other pods too; of a lost one nobody knows the address.
    knows_all = 0 < node.gpus <= len(gpus)
    found = []
    for bus, faults in _with_remembered(node, [line for line in lines_in(answer.stdout) if line.strip()]).items():
        is_switch = bus.startswith("nvswitch")
        if is_switch or bus in gpus or not knows_all:
            place = f"{bus}: SXid" if is_switch else f"GPU {gpus.get(bus, bus)}: Xid"
            found += [fail("hardware", f"{place} {number}{what}") for number, what in faults.items()]
    return worst(found)


CHECK: Final = Check(name=NAME, run=run, hardware="gpu")
