"""docs/proof.md: each feature's page and test are there, and the test belongs to the rung that is claimed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.stacks import ROOT

DOCS = ROOT / "docs"
PAGE = DOCS / "proof.md"
RUNG = {
    "unit": "unit",
    "graph": "graph",
    "programs": "program",
    "slurm": "Slurm",
    "machine": "Slurm",
    "clients": "Slurm",
    "gate": "Kubernetes",
    "e2e": "Kubernetes",
}
"""Folder of tests -> the rung on which what is in it stands."""
ENGINE_ONLY = {"e2e/test_nebius_preview.py"}
"""What is skipped without the `pulumi` command."""


@dataclass(frozen=True)
class Row:
    """A feature; its page is that of the last row that names one."""

    page: str
    feature: str
    rung: str
    test: str


def rows() -> list[Row]:
    """What the table of features says."""
    found, page = [], ""
    for line in PAGE.read_text(encoding="utf-8").partition("## Features")[2].splitlines()[4:]:
        named, feature, rung, test = (cell.strip() for cell in line.strip("|").split("|"))
        if link := re.fullmatch(r"\[[^]]+\]\(([^)]+)\)", named):
            page = link[1]
        found.append(Row(page, feature, rung, test.strip("`")))
    return found


ROWS = rows()


def test_there_are_features_and_none_is_there_twice() -> None:
    assert len(ROWS) > 60
    assert len({(row.page, row.feature) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("page", sorted({row.page for row in ROWS}))
def test_the_page_of_a_feature_is_there(page: str) -> None:
    assert (DOCS / page).exists()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.test}: {row.feature}")
def test_the_test_of_a_feature_is_there_and_stands_on_its_rung(row: Row) -> None:
    path = ROOT / "tests" / row.test
    assert re.search(r"^def test_", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert row.rung == ("Pulumi" if row.test in ENGINE_ONLY else RUNG[row.test.partition("/")[0]])
