"""Pages in Markdown, their links, and the order that docs/index.md gives them: `python -m tests.documents` checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stacks import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"

_CODE = re.compile(
    r"^( *)(```|~~~).*?^\1\2 *$|(?<!`)(`+)(?!`).+?(?<!`)\3(?!`)|^(?: {4}.*\n)+(?=\n|\Z)", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\]\(<?([^()\s>]+)>?(?: \"[^\"]*\")?\)")


def pages() -> list[Path]:
    """Those of docs/ and whatever else people read in the repository."""
    hidden = (path for path in ROOT.rglob("*.md") if not any(part[0] == "." for part in path.relative_to(ROOT).parts))
    return sorted(path for path in hidden if path.relative_to(ROOT).parts[0] not in {"build", "test-logs"})


def headings(page: Path) -> list[str]:
    """The texts of its headings, which are not in code."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#{1,6} +(.*?) *$", text, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub and the site make them of headings."""
    found: list[str] = []
    for heading in headings(page):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        found.append(f"{slug}-{number}" if (number := sum(one == slug for one in found)) else slug)
    return set(found)


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Relative links of a page: as written, where to, and the anchor. A folder stands for its README.md."""
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            yield target, there / "README.md" if (there / "README.md").exists() else there, anchor


def broken_links() -> list[str]:
    """What leads nowhere, each as `PAGE: TARGET`."""
    return [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target, there, anchor in links(page)
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there))
    ]


def reachable() -> set[Path]:
    """Pages that somebody comes to who follows links from docs/index.md."""
    found = [INDEX]
    for page in found:  # grows meanwhile
        found += {there for _, there, _ in links(page) if there.suffix == ".md" and there.exists()} - set(found)
    return set(found)


def groups() -> Mapping[str, list[Path]]:
    """Heading of docs/index.md -> the pages that are named below it; of a folder all."""
    found: dict[str, list[Path]] = {}
    for heading, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", INDEX.read_text(encoding="utf-8"), re.MULTILINE):
        listed = [
            (INDEX.parent / target).resolve() for target in re.findall(r"^- \[[^\]]*\]\(([^)#]+)", text, re.MULTILINE)
        ]
        folders = {one.parent if one.name == "README.md" else one for one in listed}
        inside = {one: sorted(one.glob("*.md")) for one in folders if one.is_dir()}
        found[heading] = [
            page for one in listed for page in inside.get(one.parent if one.name == "README.md" else one, [one])
        ]
    return found


if __name__ == "__main__":
    broken = broken_links()
    print("".join(f"{one} leads nowhere\n" for one in broken), end="", file=sys.stderr)
    sys.exit(bool(broken))
