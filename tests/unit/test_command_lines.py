"""Command lines are no secret: every user of a machine reads those of all others."""

from __future__ import annotations

import re

from tests.stacks import ROOT

SECRET = re.compile(
    r"--from-literal|--docker-password|--password[= ]|--token[= ]|-H ['\"]?\S*TOKEN: ?[\"$]", re.IGNORECASE
)
PLACES = ("cli", "local", "components", "images", "docs", "examples")


def test_neither_programs_nor_hints_nor_documents_put_a_secret_on_a_command_line() -> None:
    files = [ROOT / "README.md", *(path for place in PLACES for path in (ROOT / place).rglob("*"))]
    shown = [path for path in files if path.suffix in {".py", ".md", ".sh", ".yaml", ".yml"}]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in shown
        for line in path.read_text(encoding="utf-8").splitlines()
        if SECRET.search(line)
    ]
    assert found == []
