"""Findings, for people in 80 columns and for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from cli.status.snapshot import Snapshot
from cli.text import plain

Severity = Literal["error", "warning", "note"]

_STYLES = {"error": "red bold", "warning": "yellow", "note": "cyan"}
_MOST = 80
_CONSEQUENCES = 5
_APART = 3
"""Findings that say the same of different things are one from here on, in which the others are named."""
_NAMED = 8
_LONGEST = 300
"""Characters of one line of evidence."""


@dataclass(frozen=True)
class Finding:
    """One cause."""

    about: str
    """What is ill: `pod default-1`, `node default-1`, `job 12`, `jail`, `configuration`, ..."""
    severity: Severity
    """`error`: something does not work. `warning`: it soon may not, or somebody has to decide. `note`: it is so on
    purpose, and this is what it waits for."""
    cause: str
    mend: str
    """A command, or what to do where there is none."""
    evidence: tuple[str, ...] = ()
    """What was seen, in the words of who said it."""
    after: tuple[str, ...] = ()
    """What explains it, if there is a finding about that: it is then no cause of its own."""
    weight: int = 0
    """How many it keeps from working; among those of one severity the heaviest is first."""
    consequences: tuple[str, ...] = ()
    """Causes of the findings that follow from it."""

    def as_data(self) -> dict[str, Any]:
        """Plain data for scripts."""
        return {key: value for key, value in asdict(self).items() if key not in {"after", "weight"}}


def as_data(cluster: Snapshot, findings: Sequence[Finding], **about: str) -> dict[str, Any]:
    """Plain data for scripts. Keys are only ever added."""
    return {
        "namespace": cluster.namespace,
        "kubectl": cluster.reached_by,
        **about,
        "findings": [item.as_data() for item in findings],
        "looked_at": _looked_at(cluster),
        "unread": dict(cluster.unread),
    }


def print_findings(cluster: Snapshot, findings: Sequence[Finding], *, fine: str, stack: Path | None = None) -> None:
    """The findings, what was looked at, and what could not be. `fine` is said where there is none.

    `stack`: the file of --config.
    """
    console = Console(highlight=False, emoji=False)
    console.width = min(console.width, _MOST) if console.is_terminal else _MOST
    for number, alike in enumerate(_alike(findings), 1):
        _print_finding(console, number, *alike)
    if not findings:
        _print(console, Text(fine))
    for line in _meant(cluster, findings, stack):
        console.print(Text(line), soft_wrap=True)
    _print(console, Text(f"looked at: {_looked_at(cluster)}", style="dim"))
    for part, why in cluster.unread.items():
        _print(console, Text(f"could not look at {part}: {plain(why)}", style="magenta"))


def _print_finding(console: Console, number: int, item: Finding, *others: Finding) -> None:
    """`others`: of which the same is to be said."""
    head = Text(f"{number}. ", style="bold") + Text(f"{item.severity}: ", style=_STYLES[item.severity])
    _print(console, head + Text(plain(item.cause)))
    for line in item.evidence:
        if text := plain(line):
            short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
            _print(console, Text(f"seen: {short}", style="dim"), indent=3)
    if others:
        names = ", ".join(one.about.partition(" ")[2] for one in others[:_NAMED])
        _print(console, Text(f"the same: {len(others)} more, {names}{', ...' if others[_NAMED:] else ''}"), indent=3)
    for line in item.consequences[:_CONSEQUENCES]:
        _print(console, Text(f"therefore: {plain(line)}"), indent=3)
    if len(item.consequences) > _CONSEQUENCES:
        _print(console, Text(f"therefore: {len(item.consequences) - _CONSEQUENCES} more"), indent=3)
    if item.mend:
        # Not folded: what is to be copied stays in one line.
        console.print(Text("   mend: ") + Text(plain(item.mend), style="green"), soft_wrap=True)
    console.print()


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Those that say the same of different things together, where there are many: a lost switch is a thousand nodes."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for item in findings:
        name = item.about.partition(" ")[2]
        said = (item.cause, item.mend)
        key = (item.severity, *(text.replace(name, "*") if name else text for text in said))
        found.setdefault(key, []).append(item)
    return [part for group in found.values() for part in ([group] if len(group) > _APART else [[one] for one in group])]


def _meant(cluster: Snapshot, findings: Sequence[Finding], stack: Path | None) -> Iterator[str]:
    """For which cluster the commands are: as they stand they may be for another, to which the defaults lead."""
    meant = {
        "kubectl ": cluster.reached_by,
        "slurmstack ": f"slurmstack ... --config {quote(str(stack))}" if stack else "",
    }
    for program, command in meant.items():
        if command and any(program in item.mend for item in findings):
            yield f"{program}here: {plain(command)}"


def _print(console: Console, text: Text, indent: int = 0) -> None:
    lines = text.wrap(console, console.width - indent - 3)
    for number, line in enumerate(lines):
        line.rstrip()  # the blank at which it was folded
        console.print(Text(" " * (indent + (3 if number else 0))) + line)


def _looked_at(cluster: Snapshot) -> str:
    counts = {
        "pods": len(cluster.pods),
        "machines": len(cluster.of("Node")),
        "volume claims": len(cluster.of("PersistentVolumeClaim")),
        "Slurm nodes": len(cluster.nodes),
        "jobs": len(cluster.jobs),
    }
    read = [f"{count} {name}" for name, count in counts.items() if count or name == "jobs"]
    read += ["configuration"] if cluster.configuration else []
    read += ["accounting"] if cluster.slurmdbd_answers is not None else []
    return ", ".join(read)
