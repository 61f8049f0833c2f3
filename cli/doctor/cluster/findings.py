"""Findings, their order, and which follows from which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One cause."""

    about: str
    """What is ill: `pod default-1`, `node default-1`, `job 12`, `jail`, `configuration`, ..."""
    severity: Severity
    """`error`: something does not work. `warning`: it soon may not, or somebody has to decide. `note`: it is so on
    purpose, and this is what it waits for."""
    cause: str
    evidence: tuple[str, ...] = ()
    """What was seen, in the words of who said it."""
    mend: str = ""
    """A command, or what to do where there is none."""
    after: tuple[str, ...] = ()
    """What explains it, if there is a finding about that: it is then no cause of its own."""
    weight: int = 0
    """How many it keeps from working; among those of one severity the heaviest is first."""
    consequences: tuple[str, ...] = ()
    """Causes of the findings that follow from it."""

    def as_data(self) -> dict[str, Any]:
        """Plain data for scripts."""
        return {
            "about": self.about,
            "severity": self.severity,
            "cause": self.cause,
            "evidence": list(self.evidence),
            "mend": self.mend,
            "consequences": list(self.consequences),
        }


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Consequences are folded under their causes; then the worst and heaviest first, else as they came."""
    found = list(findings)
    first = {item.about: item for item in reversed(found)}
    below: dict[int, list[Finding]] = {}
    roots = []
    for item in found:
        root = _root(item, first)
        if root is item:
            roots.append(item)
        else:
            below.setdefault(id(root), []).append(item)
    whole = [_with(item, below.get(id(item), ())) for item in roots]
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
