"""Findings, for people and for scripts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from cli.status.snapshot import Snapshot
from cli.text import plain

Severity = Literal["error", "warning", "note"]

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
_STYLES = {"error": "red bold", "warning": "yellow", "note": "cyan"}
_CONSEQUENCES = 5
_APART = 3
"""Findings that say the same of different things are one from here on, in which the others are named."""
_NAMED = 8
SHOWN = 300
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


def as_data(cluster: Snapshot, findings: Sequence[Finding], **about: str) -> dict[str, Any]:
    """Plain data for scripts. Keys are only ever added."""
    inner = {"after", "weight"}
    return {
        "namespace": cluster.namespace,
        "kubectl": cluster.reached_by,
        **about,
        "findings": [{key: value for key, value in asdict(item).items() if key not in inner} for item in findings],
        "looked_at": _looked_at(cluster),
        "unread": dict(cluster.unread),
    }


def print_findings(cluster: Snapshot, findings: Sequence[Finding], *, fine: str, stack: Path | None = None) -> None:
    """The findings, what was looked at, and what could not be. `fine` is said where there is none.

    `stack`: the file of --config.
    """
    lines = [line for number, group in enumerate(_groups(findings), 1) for line in _lines(number, *group)]
    lines += [Text(line) for line in _command_notes(cluster, findings, stack)] if findings else [Text(fine)]
    lines.append(Text(f"looked at: {_looked_at(cluster)}", style="dim"))
    for part, why in cluster.unread.items():
        lines.append(Text(f"could not look at {part}: {plain(why)}", style="magenta"))
    console = Console(highlight=False, emoji=False)
    for line in lines:  # not folded: what is to be copied stays in one line
        console.print(line, soft_wrap=True)


def _lines(number: int, item: Finding, *others: Finding) -> Iterator[Text]:
    """`others`: of which the same is to be said."""
    head = Text.assemble((f"{number}. ", "bold"), (f"{item.severity}: ", _STYLES[item.severity]))
    yield head + Text(plain(item.cause))
    for text in filter(None, map(plain, item.evidence)):
        short = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        yield Text(f"   seen: {short}", style="dim")
    if others:
        names = ", ".join(one.about.partition(" ")[2] for one in others[:_NAMED])
        yield Text(f"   the same: {len(others)} more, {names}{', ...' if others[_NAMED:] else ''}")
    more = len(item.consequences) - _CONSEQUENCES
    for line in (*item.consequences[:_CONSEQUENCES], *([f"{more} more"] if more > 0 else [])):
        yield Text(f"   therefore: {plain(line)}")
    yield Text("   mend: ") + Text(plain(item.mend), style="green")
    yield Text()


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Those that say the same of different things together, where there are many: a lost switch is a thousand nodes."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for item in findings:
        name = item.about.partition(" ")[2]
        texts = (item.cause, item.mend)
        key = (item.severity, *(text.replace(name, "*") if name else text for text in texts))
        found.setdefault(key, []).append(item)
    return [part for group in found.values() for part in ([group] if len(group) > _APART else [[one] for one in group])]


def _command_notes(cluster: Snapshot, findings: Sequence[Finding], stack: Path | None) -> Iterator[str]:
    """For which cluster the commands are: as they stand they may be for another, to which the defaults lead."""
    mends = [item.mend for item in findings]
    if any("kubectl " in mend for mend in mends):
        yield f"kubectl here: {plain(cluster.reached_by)}"
    if stack and any("slurmstack " in mend for mend in mends):
        yield f"slurmstack here: slurmstack ... --config {plain(quote(str(stack)))}"


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


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Consequences are folded under their causes; then the worst and heaviest first, else as they came."""
    first = {item.about: item for item in reversed(findings)}
    below: dict[int, list[Finding]] = defaultdict(list)
    for item in findings:
        below[id(_root(item, first))].append(item)
    whole = [_with(item, [one for one in below[id(item)] if one is not item]) for item in findings if id(item) in below]
    return tuple(sorted(whole, key=lambda item: (_RANK[item.severity], -item.weight)))


def _root(item: Finding, first: dict[str, Finding]) -> Finding:
    """What it follows from in the end. Two that explain each other are not followed for ever."""
    seen = {id(item)}
    while True:
        above = next((first[name] for name in item.after if name in first and id(first[name]) not in seen), None)
        if above is None:
            return item
        seen.add(id(above))
        item = above


def _with(item: Finding, below: Sequence[Finding]) -> Finding:
    """With what follows from it; it is as bad as the worst of that."""
    worst = min((item, *below), key=lambda one: _RANK[one.severity]).severity
    return replace(
        item,
        severity=worst,
        weight=item.weight + sum(max(1, one.weight) for one in below),
        consequences=tuple(one.cause for one in below),
    )
