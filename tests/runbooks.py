"""docs/runbooks.md as data: a section for each alert, and its commands as a shell takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm.alerts import RUNBOOKS
from tests.stacks import ROOT

PAGE: Final = ROOT / RUNBOOKS

HEAD: Final = ""
"""In place of an alert's name: what stands before the first one."""

LOOK, MEND, OVER = PARTS = ("look", "mend", "over")
"""Of a section: its indented lines, its list of causes, and its last paragraph."""

PLACEHOLDERS: Final = ("NODE", "JOB", "PARTITION", "USER", "CHECK", "RESERVATION", "POD", "CLAIM", "REASON", "MINUTES")
"""Capitals in a command for which a person puts something; the head of the page says what."""

CONDITIONS: Final = ("monitoring.install", "a database in the cluster", "accounting", "GPUs")
"""What not every cluster has, and some commands need: `# only with ...` at their end."""

_COMMENT: Final = re.compile(r"\s+# (.*)$")
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b(?!=)")
_NO_PLACEHOLDERS: Final = frozenset({"ALERTS"})
_FUNCTION: Final = re.compile(r"^    (\w+)\(\) \{ (.*); \}$", re.MULTILINE)
_IN_TEXT: Final = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One line that a person pastes."""

    alert: str
    """Its name, or HEAD."""
    part: str
    """One of PARTS."""
    text: str
    """As a shell takes it where nothing is defined: without comment and functions of the page, with placeholders."""
    only_with: str
    """One of CONDITIONS; empty: every cluster with alerts has what it needs."""

    @property
    def reads(self) -> bool:
        """Whether it changes nothing: of commands to look, and to see that all is over."""
        return self.part in {LOOK, OVER}

    @property
    def placeholders(self) -> frozenset[str]:
        """Words in capitals that are to be replaced."""
        return frozenset(_CAPITALS.findall(self.text)) - _NO_PLACEHOLDERS

    def filled(self, values: Mapping[str, str]) -> str:
        """With what a person would put there. Raises KeyError if a placeholder has no value."""
        wanted = self.placeholders
        return _CAPITALS.sub(lambda found: values[found[0]] if found[0] in wanted else found[0], self.text)


def sections() -> dict[str, str]:
    """Alert -> text of its section; what comes before the first heading is that of HEAD."""
    head, *rest = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {HEAD: head, **dict(zip(rest[::2], rest[1::2], strict=True))}


def functions() -> dict[str, str]:
    """Those that the head of the page has people define -> what each does."""
    return dict(_FUNCTION.findall(sections()[HEAD]))


def expanded(text: str) -> str:
    """Without functions of the page. The namespace comes behind the verb: `kubectl get -n slurm`."""
    known = functions()
    pieces = re.split(rf" \| (?=(?:{'|'.join(known)}) )", text)
    for number, piece in enumerate(pieces):
        name, _, rest = piece.partition(" ")
        while name in known:
            piece = known[name].replace('"$@"', rest).replace('"$1"', rest)  # noqa: PLW2901
            name, _, rest = piece.partition(" ")
        pieces[number] = re.sub(r"^kubectl -n slurm (\S+)", r"kubectl \1 -n slurm", piece)
    return " | ".join(pieces)


def commands() -> list[Command]:
    """All of the page, in its order."""
    found = []
    for alert, text in sections().items():
        for line in text.splitlines():
            if line.startswith("    "):
                if not _FUNCTION.match(line):
                    found.append(_command(alert, LOOK, line.strip()))
            else:
                part = OVER if line.startswith("Over: ") else MEND
                found += [_command(alert, part, span) for span in _IN_TEXT.findall(line) if _is_command(span)]
    return found


def _is_command(span: str) -> bool:
    first, *more = span.split(" ")
    return bool(more) and first in {"kubectl", "slurmstack", *functions()}


def _command(alert: str, part: str, line: str) -> Command:
    comment = _COMMENT.search(line)
    only = comment[1].removeprefix("only with ") if comment and "only with" in comment[1] else ""
    return Command(alert=alert, part=part, text=expanded(_COMMENT.sub("", line)), only_with=only)


def indented(page: Path) -> list[str]:
    """Lines of any page that are indented by four spaces, without their comments."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [_COMMENT.sub("", line.strip()) for line in lines if line.startswith("    ")]
