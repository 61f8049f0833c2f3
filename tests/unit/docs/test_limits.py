"""How much there is to read, and that every page can be found."""

from __future__ import annotations

from tests.documents import DOCS, broken_links, groups, pages, reachable
from tests.stacks import ROOT

OF_DOCS = sorted(DOCS.rglob("*.md"))


def test_docs_are_at_most_45_pages_and_200_kib() -> None:
    assert len(OF_DOCS) <= 45
    assert sum(page.stat().st_size for page in OF_DOCS) <= 200 * 1024


def test_no_page_is_longer_than_12_kib_and_readme_than_8() -> None:
    assert [page.name for page in OF_DOCS if page.stat().st_size > 12 * 1024] == []
    assert (ROOT / "README.md").stat().st_size <= 8 * 1024


def test_no_line_is_longer_than_160_characters_or_left_by_a_merge() -> None:
    bad = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages()
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 160 or line.startswith(("<<<<<<<", "|||||||", ">>>>>>>"))
    ]
    assert bad == []


def test_each_page_of_docs_is_reached_from_its_index_and_is_in_the_site_s_navigation() -> None:
    assert set(OF_DOCS) - reachable() == set()
    listed = [page for group in groups().values() for page in group]
    assert sorted([DOCS / "index.md", *listed]) == OF_DOCS


def test_each_link_and_anchor_leads_somewhere() -> None:
    assert broken_links() == []
