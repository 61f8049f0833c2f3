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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.health.contract import Check, FaultClass, Node, Result, Status, Thresholds
from images.common.lines import lines_in
from images.health.checks.gpu_presence import addresses, kernel_address
from images.health.state import recall, remember
from images.health.verdict import UnknownError, not_checked, worst

NAME: Final = "gpu-xid"

SECONDS: Final = 4.0
"""For reading the log, which is at most some megabytes of memory."""

TELL_SECONDS: Final = 600.0
"""For how long an application's error is told: its user learns why a job ended."""

WARN_SECONDS: Final = 86400.0
"""For how long other errors are told that need no reset."""

_LONG: Final = 65_536
"""Characters: half of the smallest buffer that kernels of distributions have (CONFIG_LOG_BUF_SHIFT=17)."""

_SEEN: Final = "gpus-seen"
_DRIVER: Final = "proc/driver/nvidia/version"

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
    fault: FaultClass = "hardware"
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
        bus=kernel_address(match["bus"]),
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
    fault: FaultClass = "user" if judgement == "user" else entry.get("fault", "hardware")
    return replace(base, judgement=judgement, meaning=entry["meaning"], fault=fault)


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


def read_log(runner: Runner) -> str:
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
    return answer.stdout


def with_remembered(node: Node, log: str) -> list[Event]:
    """What is in the log, and before it the faults that were in it once, unless somebody has emptied it.

    A log that has lost its oldest lines still ends in what was its last line at the run before; one that was emptied
    does not have that line any more. Nor has one that users have filled since, by programs that crash: that is long.
    """
    lines = lines_in(log)
    found = find(lines)
    boot, before = this_boot(node), recall(node, NAME)
    earlier: list[Event] = []
    if before.get("boot") == boot and (before["last"] in lines or len(log) >= _LONG):
        present = {(event.bus, event.number, event.seconds) for event in found}
        known = [Event(**kept, judgement="fail") for kept in before["failing"]]
        earlier = [event for event in known if (event.bus, event.number, event.seconds) not in present]
    events = unsettled([*earlier, *found])
    failing = {
        (event.bus, event.number): {key: vars(event)[key] for key in ("bus", "number", "meaning", "seconds")}
        for event in events
        if event.judgement == "fail"
    }
    last = lines[-1] if lines else ""
    remember(node, NAME, {"boot": boot, "last": last, "failing": list(failing.values())})
    return events


def this_boot(node: Node) -> str:
    """The kernel's name for the time since the machine started; empty if it tells none."""
    try:
        return (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def is_anothers(node: Node, event: Event, gpus: Mapping[str, int]) -> bool:
    """Whether it is about a GPU of this machine that another pod has: the kernel's log is of all.

    Only where as many GPUs have been seen in this boot as the node should have: a lost one is not seen any more.
    """
    boot, kept = this_boot(node), recall(node, _SEEN)
    before = kept["gpus"] if kept.get("boot") == boot else []
    seen = {*gpus, *before}
    if seen != set(before):
        remember(node, _SEEN, {"boot": boot, "gpus": sorted(seen)})
    return 0 < node.gpus <= len(seen) and event.bus not in seen and not event.is_of_switch


def of_others(event: Event) -> Event:
    """The same, as a word and no fault of this node."""
    if event.judgement == "ignore":
        return event
    return replace(event, judgement="warn", meaning=f"{event.meaning} (a GPU that is not this node's)")


def told(event: Event, uptime: float | None, thresholds: Thresholds) -> bool:
    """Whether it is still worth a word. What has no time, or a time that makes no sense, is."""
    if event.judgement == "ignore":
        return False
    if event.judgement == "fail" or event.seconds is None or uptime is None:
        return True
    key, default = ("tell_seconds", TELL_SECONDS) if event.judgement == "user" else ("warn_seconds", WARN_SECONDS)
    return uptime - event.seconds <= thresholds.get(NAME, key, default)


def judge(events: list[Event], gpus: Mapping[str, int]) -> Result:
    """All events as one result: each Xid once, with the GPUs that it is about."""
    groups: dict[tuple[Status, FaultClass, str], dict[str, None]] = {}
    for event in events:
        status = Status.FAIL if event.judgement == "fail" else Status.WARN
        place = f"GPU {gpus[event.bus]}" if event.bus in gpus else event.bus
        groups.setdefault((status, event.fault, f"{event.name}, {event.meaning}"), {})[place] = None
    return worst(
        Result(status=status, message=f"{_join(places)}: {message}", fault=fault)
        for (status, fault, message), places in groups.items()
    )


def _join(places: Mapping[str, None]) -> str:
    numbers = sorted(int(place.removeprefix("GPU ")) for place in places if place.startswith("GPU "))
    gpus = [f"GPU {', '.join(map(str, numbers))}"] if numbers else []
    return ", ".join([*gpus, *sorted(place for place in places if not place.startswith("GPU "))])


def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Read the log and judge what the driver wrote."""
    log = read_log(runner)
    gpus = addresses(node)
    if not gpus and "NVRM:" not in log and not (node.root / _DRIVER).exists():
        return not_checked("nothing here shows an NVIDIA driver, and only that one writes Xids")
    events = [of_others(event) if is_anothers(node, event, gpus) else event for event in with_remembered(node, log)]
    uptime = _uptime(node)
    found = [judge([event for event in events if told(event, uptime, thresholds)], gpus)]
    # Lines that say something of an Xid, and nobody knows what: for as long as other errors are told.
    seconds = thresholds.get(NAME, "warn_seconds", WARN_SECONDS)
    at_of_odd = not_understood(lines_in(log))
    odd = [line for at, line in at_of_odd if at is None or uptime is None or uptime - at <= seconds]
    if odd:
        found.append(not_checked(f"{len(odd)} lines about Xids are not understood: {odd[-1][:120]}"))
    counts = Counter(event.number for event in events)
    return replace(worst(found), values={f'gpu_xids{{number="{number}"}}': float(n) for number, n in counts.items()})


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
