"""docs/decisions: each number is there once, and who refers to one finds it on the page that is named."""

from __future__ import annotations

import re

import pytest

from tests.stacks import ROOT

FOLDER = ROOT / "docs" / "decisions"
CODE = ("cli", "components", "config", "images", "local", "slurm", "slurm_templates", "tests")
NUMBERS = {
    page.name: re.findall(r"^## (\d{4}) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    for page in sorted(FOLDER.glob("*.md"))
}
"""Page -> numbers of its decisions, in their order."""


def test_a_number_is_there_once_and_pages_are_in_order() -> None:
    every = [number for numbers in NUMBERS.values() for number in numbers]
    assert len(every) == len(set(every)) > 50
    assert all(numbers == sorted(numbers) for numbers in NUMBERS.values())


def test_there_are_few_pages_and_they_are_short() -> None:
    assert len(NUMBERS) <= 4
    assert sum((FOLDER / page).stat().st_size for page in NUMBERS) <= 20_000


@pytest.mark.parametrize("room", CODE)
def test_a_decision_that_code_names_is_on_that_page(room: str) -> None:
    wrong = []
    for path in sorted((ROOT / room).rglob("*")):
        if path.suffix not in {".py", ".c", ".h", ".j2", ".yaml"}:
            continue
        text = path.read_text(encoding="utf-8")
        for page, number in re.findall(r"docs/decisions/([\w.-]+)(?:,? \(?(\d{4}))?", text):
            if number and number not in NUMBERS.get(page, ()):
                wrong.append(f"{path.relative_to(ROOT)}: {page} {number}")
            if page not in NUMBERS:
                wrong.append(f"{path.relative_to(ROOT)}: {page}")
        every = {number for numbers in NUMBERS.values() for number in numbers}
        wrong += [
            f"{path.relative_to(ROOT)}: {number}"
            for number in re.findall(r"\b[Dd]ecision (\d{2,4})\b", text)
            if number.zfill(4) not in every
        ]
    assert wrong == []
