"""gpu-xid: errors that the NVIDIA driver has written to the kernel's log since the machine started.

A fault of the hardware holds until one of these: the machine restarts (its log is empty then), the driver says that
nothing is left to recover (Xid 154 to "None", after a reset), or an administrator who has reset the GPU empties the log
with `dmesg --clear`. It also holds when newer lines have pushed it out of the log, for which the check remembers it; a
pod that restarts forgets that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.files import lines_in
from images.common.health.contract import Check, FaultClass, Node, Result, Status, Thresholds
from images.health.nvidia import smi, xid_lines
from images.health.nvidia.xid_lines import Event
from images.health.state import recall, remember
from images.health.verdict import UnknownError, not_checked, or_not_checked, worst

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
    found = xid_lines.find(lines)
    boot, before = this_boot(node), recall(node, NAME)
    earlier: list[Event] = []
    failing_before = before.get("failing")
    goes_on = before.get("last") in lines or len(log) >= _LONG
    if before.get("boot") == boot and goes_on and isinstance(failing_before, list):
        present = {(event.bus, event.number, event.seconds) for event in found}
        known = [event for event in map(_event, failing_before) if event is not None]
        earlier = [event for event in known if (event.bus, event.number, event.seconds) not in present]
    events = xid_lines.unsettled([*earlier, *found])
    failing = {(event.bus, event.number): event for event in events if event.judgement == "fail"}
    last = lines[-1] if lines else ""
    remember(node, NAME, {"boot": boot, "last": last, "failing": [_plain(event) for event in failing.values()]})
    return events


def this_boot(node: Node) -> str:
    """The kernel's name for the time since the machine started; empty if it tells none."""
    try:
        return (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _plain(event: Event) -> dict[str, Any]:
    return {"bus": event.bus, "number": event.number, "meaning": event.meaning, "seconds": event.seconds}


def _event(kept: Any) -> Event | None:
    try:
        seconds = None if kept["seconds"] is None else float(kept["seconds"])
        return Event(
            bus=str(kept["bus"]),
            number=int(kept["number"]),
            judgement="fail",
            meaning=str(kept["meaning"]),
            seconds=seconds,
        )
    except (KeyError, TypeError, ValueError):
        return None


def is_anothers(node: Node, event: Event, gpus: Mapping[str, int]) -> bool:
    """Whether it is about a GPU of this machine that another pod has: the kernel's log is of all.

    Only where as many GPUs have been seen in this boot as the node should have: a lost one is not seen any more.
    """
    boot, kept = this_boot(node), recall(node, _SEEN)
    before = kept.get("gpus") if kept.get("boot") == boot else None
    seen = {*gpus, *(map(str, before) if isinstance(before, list) else ())}
    if not isinstance(before, list) or seen != set(before):
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


@or_not_checked
def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Read the log and judge what the driver wrote."""
    log = read_log(runner)
    gpus = smi.bus_addresses(node)
    if not gpus and "NVRM:" not in log and not (node.root / _DRIVER).exists():
        return not_checked("nothing here shows an NVIDIA driver, and only that one writes Xids")
    events = [of_others(event) if is_anothers(node, event, gpus) else event for event in with_remembered(node, log)]
    uptime = _uptime(node)
    counts: dict[str, float] = {}
    for event in events:
        label = f'gpu_xids{{number="{event.number}"}}'
        counts[label] = counts.get(label, 0.0) + 1.0
    result = worst(
        [
            judge([event for event in events if told(event, uptime, thresholds)], gpus),
            *_unknown(log, uptime, thresholds),
        ]
    )
    return Result(status=result.status, message=result.message, fault=result.fault, values=counts)


def _unknown(log: str, uptime: float | None, thresholds: Thresholds) -> list[Result]:
    """Lines that say something of an Xid, and nobody knows what: for as long as other errors are told."""
    seconds = thresholds.get(NAME, "warn_seconds", WARN_SECONDS)
    lines = [
        line
        for at, line in xid_lines.not_understood(lines_in(log))
        if at is None or uptime is None or uptime - at <= seconds
    ]
    return [not_checked(f"{len(lines)} lines about Xids are not understood: {lines[-1][:120]}")] if lines else []


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
