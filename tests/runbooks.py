"""The pages of docs/runbooks as data: their sections, and their commands as a shell takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm.alerts import RUNBOOKS
from tests.stacks import ROOT

FOLDER: Final = ROOT / RUNBOOKS

LOOK, CAUSES, MEND, OVER = SECTIONS = ("Look", "Most likely causes", "Mend", "Over")
"""Headings of a page, in this order, after what the alert means."""

PLACEHOLDERS: Final = ("NODE", "JOB", "PARTITION", "USER", "CHECK", "RESERVATION", "POD", "CLAIM", "REASON", "MINUTES")
"""Capitals in a command for which a person puts something; README.md of the pages says what."""

CONDITIONS: Final = (
    "monitoring.install", "rest.tls.issuer", "a database in the cluster", "accounting", "GPUs", "metrics-server",
)  # fmt: skip
"""What not every cluster has, and some commands need: `# only with ...` at their end."""

_COMMENT: Final = re.compile(r"\s+# (.*)$")
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b(?!=)")
_NO_PLACEHOLDERS: Final = frozenset({"ECC", "ALERTS"})


@dataclass(frozen=True, kw_only=True)
class Command:
    """One line that a person pastes."""

    page: str
    """Name of the alert, or README."""
    section: str
    text: str
    """As a shell takes it, without its comment and with placeholders."""
    only_with: str
    """One of CONDITIONS; empty: every cluster with alerts has what it needs."""

    @property
    def reads(self) -> bool:
        """Whether it changes nothing: of commands to look, and to see that all is over."""
        return self.section in {LOOK, OVER}

    @property
    def placeholders(self) -> frozenset[str]:
        """Words in capitals that are to be replaced."""
        return frozenset(_CAPITALS.findall(self.text)) - _NO_PLACEHOLDERS

    def filled(self, values: Mapping[str, str]) -> str:
        """With what a person would put there. Raises KeyError if a placeholder has no value."""
        wanted = self.placeholders
        return _CAPITALS.sub(lambda found: values[found[0]] if found[0] in wanted else found[0], self.text)


def pages() -> list[Path]:
    """Those of alerts, without README.md."""
    return sorted(path for path in FOLDER.glob("*.md") if path.stem != "README")


def sections(page: Path) -> dict[str, str]:
    """Heading -> text. What comes before the first heading is under the empty one."""
    head, *rest = re.split(r"^## (.*)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": head, **dict(zip(rest[::2], rest[1::2], strict=True))}


def commands(page: Path) -> list[Command]:
    """Each line that is indented by four spaces."""
    found = []
    for section, text in sections(page).items():
        for line in text.splitlines():
            if line.startswith("    "):
                comment = _COMMENT.search(line)
                only = comment[1].removeprefix("only with ") if comment and "only with" in comment[1] else ""
                found.append(
                    Command(page=page.stem, section=section, text=_COMMENT.sub("", line.strip()), only_with=only)
                )
    return found
