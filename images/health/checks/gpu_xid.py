"""gpu-xid: errors that the NVIDIA driver has written to the kernel's log since the machine started.

A fault of the hardware holds until one of these: the machine restarts (its log is empty then), the driver says that
nothing is left to recover (Xid 154 to "None", after a reset), or an administrator who has reset the GPU empties the log
with `dmesg --clear`. xid_table.json says how each is judged. Forms of the lines, with the log's own prefix of priority
and time before them:

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:25:00 GPU-I:05): 94, ...                        one instance of a divided GPU (MIG)
    NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)
    NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.files import lines_in
from images.common.health.contract import Check, FaultClass, Node, Result, Status, Thresholds
from images.health.checks.gpu_presence import addresses, kernel_address
from images.health.verdict import UnknownError, not_checked, worst

NAME: Final = "gpu-xid"

SECONDS: Final = 4.0
"""For reading the log, which is at most some megabytes of memory."""

WARN_SECONDS: Final = 86400.0
"""For how long errors are told that need no reset."""

_DRIVER: Final = "proc/driver/nvidia/version"

Judgement = Literal["fail", "warn", "ignore"]

_TABLE: Final = Path(__file__).with_name("xid_table.json")

_STAMP: Final = r"(?:<\d+>)?\[\s*\d+\.\d{6}\]"
_XID: Final = (
    r"(?:<\d+>)?(?:\[\s*(?P<seconds>\d+\.\d+)\]\s*)?"
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (?P<number>\d+)"
    r"(?:, (?P<text>.*))?"
)
_RECOVERY: Final = r"GPU recovery action changed from 0x\w+ \([^)]*\) to 0x\w+ \(([^)]*)\)"
_FATAL: Final = r"\bFatal\s+XC"
_NO_ACTION: Final = "none"
_RECOVERY_CHANGED: Final = 154
_P2P: Final = "drain p2p"
"""The only recovery action that leaves the GPU usable (for programs that do without its links)."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One Xid of one GPU."""

    bus: str
    """PCI address as the kernel writes it, `0000:3b:00`."""
    number: int
    judgement: Judgement
    meaning: str
    seconds: float | None = None
    """When, in seconds of the kernel's log since the machine started; None if the log has no times."""
    fault: FaultClass = "hardware"
    settles: bool = False
    """Whether this one says that earlier ones of the same GPU are settled."""


def events_in(lines: Iterable[str]) -> list[Event]:
    """All Xids in lines of the kernel's log, oldest first, without what a later word of the driver has settled."""
    events: list[Event] = []
    table: dict[str, Any] = {}
    for line in _records(lines):
        match = re.fullmatch(_XID, line) if "Xid (" in line else None
        if match is None:
            continue
        table = table or json.loads(_TABLE.read_text(encoding="utf-8"))
        event = Event(
            bus=kernel_address(match["bus"]),
            number=int(match["number"]),
            seconds=None if match["seconds"] is None else float(match["seconds"]),
            **_judged(match["number"], match["text"] or "", table),
        )
        if event.settles:
            events = [each for each in events if each.bus != event.bus]
        elif event.number == _RECOVERY_CHANGED:  # only the last one of each GPU
            events = [each for each in events if (each.bus, each.number) != (event.bus, event.number)]
        events.append(event)
    return events


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


def _judged(number: str, text: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Judgement and meaning of an Xid, and whose fault it is."""
    entry = table["xids"].get(number)
    if entry is None:
        return {"judgement": "warn", "meaning": "not in the table of known Xids"}
    if int(number) == _RECOVERY_CHANGED:
        return _recovery(text)
    judgement = entry.get("judgement") or table["by_action"].get(entry["action"], "warn")
    if judgement == "by severity":
        judgement = "fail" if re.search(_FATAL, text) else "warn"
    return {"judgement": judgement, "meaning": entry["meaning"], "fault": entry.get("fault", "hardware")}


def _recovery(text: str) -> dict[str, Any]:
    """The driver's own summary: what is to be done before the GPU works again, or that nothing is any more."""
    match = re.search(_RECOVERY, text)
    if match is None:
        return {"judgement": "warn", "meaning": "recovery action changed"}
    action = match[1].strip()
    if action.lower() == _NO_ACTION:
        return {"judgement": "ignore", "meaning": "nothing to recover", "settles": True}
    return {"judgement": "warn" if action.lower() == _P2P else "fail", "meaning": f"the driver asks for: {action[:40]}"}


def _read_log(runner: Runner) -> list[str]:
    """The kernel's log since it was last emptied, in the form of syslog(2). Raises UnknownError with the reason."""
    answer = runner(["dmesg", "--raw"], timeout=SECONDS)
    if answer.code == TIMED_OUT:
        raise UnknownError(f"dmesg did not end in {SECONDS:g} s")
    if answer.code == NO_PROGRAM:
        raise UnknownError("there is no dmesg")
    if not answer.ok:
        raise UnknownError(answer.message[:160])
    lines = [line for line in lines_in(answer.stdout) if line.strip()]
    if lines and not any(line.startswith("<") for line in lines):
        raise UnknownError(f"dmesg says something unexpected: {lines[0][:80]}")
    return lines


def _judge(events: list[Event], gpus: Mapping[str, int]) -> Result:
    """All events as one result: each Xid once, with the GPUs that it is about."""
    groups: dict[tuple[Status, FaultClass, str], set[str]] = {}
    for event in events:
        status = Status.FAIL if event.judgement == "fail" else Status.WARN
        groups.setdefault((status, event.fault, f"Xid {event.number}, {event.meaning}"), set()).add(event.bus)
    found = []
    for (status, fault, message), buses in groups.items():
        numbers = sorted(gpus[bus] for bus in buses if bus in gpus)
        places = [f"GPU {', '.join(map(str, numbers))}"] if numbers else []
        places += sorted(bus for bus in buses if bus not in gpus)
        found.append(Result(status=status, message=f"{', '.join(places)}: {message}", fault=fault))
    return worst(found)


def run(node: Node, runner: Runner, _thresholds: Thresholds) -> Result:
    """Read the log and judge what the driver wrote."""
    lines, gpus = _read_log(runner), addresses(node)
    if not gpus and not any("NVRM:" in line for line in lines) and not (node.root / _DRIVER).exists():
        return not_checked("nothing here shows an NVIDIA driver, and only that one writes Xids")
    uptime = _uptime(node)
    # The log is of all GPUs of the machine, those of other pods too; of a lost one nobody knows the address.
    knows_all = 0 < node.gpus <= len(gpus)

    def is_told(event: Event) -> bool:
        """Whether it is still worth a word. What has no time, or a time that makes no sense, is."""
        if event.judgement == "ignore" or (knows_all and event.bus not in gpus):
            return False
        is_old = event.seconds is not None and uptime is not None and uptime - event.seconds > WARN_SECONDS
        return event.judgement == "fail" or not is_old

    return _judge([event for event in events_in(lines) if is_told(event)], gpus)


def _uptime(node: Node) -> float | None:
    try:
        return float((node.root / "proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


CHECK: Final = Check(
    name=NAME,
    summary="errors of the GPUs in the kernel's log (Xids), as NVIDIA's catalogue classes them",
    run=run,
    hardware="gpu",
)
