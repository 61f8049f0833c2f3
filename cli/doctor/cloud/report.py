"""Findings: one line each, for people or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from cli.doctor.cloud.ask import Unanswered

State = Literal["fine", "warning", "change", "unchecked"]

_STYLES: dict[State, tuple[str, str]] = {
    "fine": ("fine", "green"),
    "warning": ("warning", "yellow"),
    "change": ("change", "red bold"),
    "unchecked": ("not checked", "magenta"),
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    """Name of the check, for example `quotas`."""
    state: State
    """`change`: `up` would fail or hang until something is changed. `unchecked`: the check could not be made."""
    message: str


def fine(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, state="fine", message=message)


def warning(check: str, message: str) -> Finding:
    """Something to know."""
    return Finding(check=check, state="warning", message=message)


def change(check: str, message: str) -> Finding:
    """Something that must change first."""
    return Finding(check=check, state="change", message=message)


def unchecked(check: str, subject: str, why: Unanswered) -> Finding:
    """The check could not be made."""
    return Finding(check=check, state="unchecked", message=f"{subject}: {why.reason}")


def must_change(findings: Sequence[Finding]) -> bool:
    """Whether anything must change before `up`."""
    return any(item.state == "change" for item in findings)


def print_findings(findings: Sequence[Finding]) -> None:
    """Lines for people, in the order of the checks."""
    console = Console(highlight=False, emoji=False)
    width = max(len(item.check) for item in findings)
    for item in findings:
        word, style = _STYLES[item.state]
        console.print(f"[{style}]{word:11}[/] {item.check:{width}}  {escape(item.message)}", soft_wrap=True)


def as_data(findings: Sequence[Finding], *, cloud: str) -> dict[str, Any]:
    """Plain data for scripts."""
    return {"cloud": cloud, "ok": not must_change(findings), "findings": [asdict(item) for item in findings]}
