"""Xids in the kernel's log: which there are, and how each is judged by the table in xid_table.json.

Forms of the lines, with the log's own prefix of priority and time before them:

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:25:00 GPU-I:05): 94, ...                        one instance of a divided GPU (MIG)
    NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)
    NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 48 LTSSM Fault Up
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

Judgement = Literal["fail", "warn", "user", "ignore"]

_TABLE: Final = Path(__file__).with_name("xid_table.json")

_PREFIX: Final = r"(?:<\d+>)?(?:\[\s*(?P<seconds>\d+\.\d+)\]\s*)?"
_STAMP: Final = re.compile(r"(?:<\d+>)?\[\s*\d+\.\d{6}\]")
_XID: Final = (
    _PREFIX + r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (?P<number>\d+)"
    r"(?:, (?P<text>.*))?"
)
_ABOUT_XID: Final = _PREFIX + r"NVRM: Xid \((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}[:.].*"
"""Whatever the driver says of an Xid. Longer than a process' name may be: with that the kernel begins lines, too."""
_SWITCH: Final = (
    _PREFIX + r"nvidia-(?P<switch>nvswitch\d+): SXid \([^)]*\): (?P<number>\d+), (?P<severity>Fatal|Non-fatal), .*"
)
_RECOVERY: Final = r"GPU recovery action changed from 0x\w+ \([^)]*\) to 0x(\w+) \(([^)]*)\)"
_FATAL: Final = r"\bFatal\s+XC"
_NO_ACTION: Final = "none"
_RECOVERY_CHANGED: Final = 154
_P2P: Final = "drain p2p"
"""The only recovery action that leaves the GPU usable (for programs that do without its links)."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One Xid of one GPU (or an SXid of one NVSwitch)."""

    bus: str
    """PCI address as the kernel writes it, `0000:3b:00`; the name of an NVSwitch, `nvswitch0`."""
    number: int
    judgement: Judgement
    meaning: str
    seconds: float | None = None
    """When, in seconds of the kernel's log since the machine started; None if the log has no times."""
    fault: Literal["user", "node", "hardware"] = "hardware"
    settles: bool = False
    """Whether this one says that earlier ones of the same GPU are settled."""

    @property
    def is_of_switch(self) -> bool:
        """Whether it is an SXid."""
        return self.bus.startswith("nvswitch")

    @property
    def name(self) -> str:
        """`Xid 79`, or `SXid 20034`."""
        return f"{'SXid' if self.is_of_switch else 'Xid'} {self.number}"


def find(lines: Iterable[str]) -> list[Event]:
    """All Xids in lines of the kernel's log, oldest first."""
    found = []
    table: dict[str, Any] = {}
    for line in _records(lines):
        if "Xid (" not in line:
            continue
        table = table or json.loads(_TABLE.read_text(encoding="utf-8"))
        event = _gpu(line, table) or _switch(line)
        if event is not None:
            found.append(event)
    return found


def _records(lines: Iterable[str]) -> Iterator[str]:
    """The first line of each record.

    A record may have text of a user's in it, with line breaks: the name of a file that a program ended in. The kernel
    then writes priority and time, in microseconds, before each of its lines. The driver's own have one line.
    """
    last = ""
    for line in lines:
        match = _STAMP.match(line)
        if match is None or match[0] != last:
            yield line
        last = match[0] if match else ""


def not_understood(lines: Iterable[str]) -> list[tuple[float | None, str]]:
    """Lines about Xids in a form that is unknown here: when, in seconds of the log, and the line."""
    found = []
    for line in _records(lines):
        match = re.fullmatch(_ABOUT_XID, line) if "Xid (" in line else None
        if match is not None and re.fullmatch(_XID, line) is None:
            found.append((None if match["seconds"] is None else float(match["seconds"]), line))
    return found


def _gpu(line: str, table: dict[str, Any]) -> Event | None:
    match = re.fullmatch(_XID, line)
    if match is None:
        return None
    number, text = int(match["number"]), match["text"] or ""
    base = Event(
        bus=f"{match['bus'].lower().partition(':')[0][-4:]}:{match['bus'].lower().partition(':')[2]}",
        number=number,
        judgement="warn",
        meaning="not in the table of known Xids",
        seconds=None if match["seconds"] is None else float(match["seconds"]),
    )
    entry = table["xids"].get(str(number))
    if entry is None:
        return base
    if number == _RECOVERY_CHANGED:
        return _recovery(base, text)
    judgement = entry.get("judgement") or table["by_action"].get(entry["action"], "warn")
    if judgement == "by severity":
        judgement = "fail" if re.search(_FATAL, text) else "warn"
    fault: Literal["user", "node", "hardware"] = "user" if judgement == "user" else entry.get("fault", "hardware")
    return replace(base, judgement=judgement, meaning=str(entry["meaning"]), fault=fault)


def _recovery(base: Event, text: str) -> Event:
    """The driver's own summary: what is to be done before the GPU works again, or that nothing is any more."""
    match = re.search(_RECOVERY, text)
    if match is None:
        return replace(base, meaning="recovery action changed")
    action = match[2].strip()
    if action.lower() == _NO_ACTION:
        return replace(base, judgement="ignore", meaning="nothing to recover", settles=True)
    judgement: Judgement = "warn" if action.lower() == _P2P else "fail"
    return replace(base, judgement=judgement, meaning=f"the driver asks for: {action[:40]}")


def _switch(line: str) -> Event | None:
    match = re.fullmatch(_SWITCH, line)
    if match is None:
        return None
    fatal = match["severity"] == "Fatal"
    return Event(
        bus=match["switch"],
        number=int(match["number"]),
        judgement="fail" if fatal else "warn",
        meaning="fatal error of an NVSwitch" if fatal else "error of an NVSwitch",
        seconds=None if match["seconds"] is None else float(match["seconds"]),
    )


def unsettled(events: Iterable[Event]) -> list[Event]:
    """Without what a later word of the driver has settled, and only the last recovery action of each GPU."""
    left: list[Event] = []
    for event in events:
        if event.settles:
            left = [each for each in left if each.bus != event.bus]
        elif event.number == _RECOVERY_CHANGED:
            left = [each for each in left if (each.bus, each.number) != (event.bus, event.number)]
        if not event.settles:
            left.append(event)
    return left
