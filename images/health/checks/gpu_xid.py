"""gpu-xid: errors that the NVIDIA driver has written to the kernel's log since the machine started.

A fault of the hardware holds until one of these: the machine restarts (its log is empty then), the driver says that
nothing is left to recover (Xid 154 to "None", after a reset), or an administrator who has reset the GPU empties the log
with `dmesg --clear`. It also holds when newer lines have pushed it out of the log, for which the check remembers it; a
pod that restarts forgets that. xid_table.json says how each is judged. Forms of the lines, with the log's own prefix of
priority and time before them:

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:25:00 GPU-I:05): 94, ...                        one instance of a divided GPU (MIG)
    NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)
    NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 48 LTSSM Fault Up
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
from images.health.state import recall, remember
from images.health.verdict import UnknownError, not_checked, worst

NAME: Final = "gpu-xid"

SECONDS: Final = 4.0
"""For reading the log, which is at most some megabytes of memory."""

WARN_SECONDS: Final = 86400.0
"""For how long errors are told that need no reset."""

_LONG: Final = 65_536
"""Characters: half of the smallest buffer that kernels of distributions have (CONFIG_LOG_BUF_SHIFT=17)."""

_DRIVER: Final = "proc/driver/nvidia/version"

Judgement = Literal["fail", "warn", "ignore"]

_TABLE: Final = Path(__file__).with_name("xid_table.json")

_STAMP: Final = r"(?:<\d+>)?\[\s*\d+\.\d{6}\]"
_PREFIX: Final = r"(?:<\d+>)?(?:\[\s*(?P<seconds>\d+\.\d+)\]\s*)?"
_SWITCH: Final = _PREFIX + (
    r"nvidia-(?P<bus>nvswitch\d+): SXid \([^)]*\): (?P<number>\d+), (?P<severity>Fatal|Non-fatal), .*"
)
_XID: Final = _PREFIX + (
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
    """One Xid of one GPU (or an SXid of one NVSwitch)."""

    bus: str
    """PCI address as the kernel writes it, `0000:3b:00`; the name of an NVSwitch, `nvswitch0`."""
    number: int
    judgement: Judgement
    meaning: str
    seconds: float | None = None
    """When, in seconds of the kernel's log since the machine started; None if the log has no times."""
    fault: FaultClass = "hardware"
    settles: bool = False
    """Whether this one says that earlier ones of the same GPU are settled."""

    @property
    def is_of_switch(self) -> bool:
        """Whether it is an SXid."""
        return self.bus.startswith("nvswitch")


def events_in(lines: Iterable[str]) -> list[Event]:
    """All Xids in lines of the kernel's log, oldest first."""
    events: list[Event] = []
    table: dict[str, Any] = {}
    for line in _records(lines):
        match = (re.fullmatch(_XID, line) or re.fullmatch(_SWITCH, line)) if "Xid (" in line else None
        if match is None:
            continue
        table = table or json.loads(_TABLE.read_text(encoding="utf-8"))
        said = match.groupdict()
        event = Event(
            bus=said["bus"] if "severity" in said else kernel_address(said["bus"]),
            number=int(said["number"]),
            seconds=None if said["seconds"] is None else float(said["seconds"]),
            **(
                _of_switch(said["severity"])
                if "severity" in said
                else _judged(said["number"], said["text"] or "", table)
            ),
        )
        events.append(event)
    return events


def unsettled(events: Iterable[Event]) -> list[Event]:
    """Without what a later word of the driver has settled, and only the last recovery action of each GPU."""
    left: list[Event] = []
    for event in events:
        if event.settles:
            left = [each for each in left if each.bus != event.bus]
        elif event.number == _RECOVERY_CHANGED:
            left = [each for each in left if (each.bus, each.number) != (event.bus, event.number)]
        left.append(event)
    return left


def _with_remembered(node: Node, lines: list[str], found: list[Event]) -> list[Event]:
    """What is in the log, and before it the faults that were in it once, unless somebody has emptied it.

    A log that has lost its oldest lines still ends in what was its last line at the run before; one that was emptied
    does not have that line any more. Nor has one that users have filled since, by programs that crash: that is long.
    """
    try:
        boot = (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = ""
    before, earlier = recall(node, NAME), []
    if before.get("boot") == boot and (before["last"] in lines or sum(map(len, lines)) >= _LONG):
        present = {(event.bus, event.number, event.seconds) for event in found}
        known = [Event(**kept, judgement="fail") for kept in before["failing"]]
        earlier = [event for event in known if (event.bus, event.number, event.seconds) not in present]
    events = unsettled([*earlier, *found])
    failing = {
        (event.bus, event.number): {key: vars(event)[key] for key in ("bus", "number", "meaning", "seconds")}
        for event in events
        if event.judgement == "fail"
    }
    remember(node, NAME, {"boot": boot, "last": lines[-1] if lines else "", "failing": list(failing.values())})
    return events


def _of_switch(severity: str) -> dict[str, Any]:
    is_fatal = severity == "Fatal"
    return {"judgement": "fail" if is_fatal else "warn", "meaning": f"{'fatal ' * is_fatal}error of an NVSwitch"}


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
        groups.setdefault(
            (status, event.fault, f"{'S' * event.is_of_switch}Xid {event.number}, {event.meaning}"), set()
        ).add(event.bus)
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
        if event.judgement == "ignore" or (knows_all and event.bus not in gpus and not event.is_of_switch):
            return False
        is_old = event.seconds is not None and uptime is not None and uptime - event.seconds > WARN_SECONDS
        return event.judgement == "fail" or not is_old

    return _judge([event for event in _with_remembered(node, lines, events_in(lines)) if is_told(event)], gpus)


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
