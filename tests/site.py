"""What mkdocs asks while it builds the site (`make site`): its navigation, and links to the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests import documents
from tests.documents import DOCS


def _name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def on_config(config: Any) -> None:
    """The groups of docs/index.md; a folder's pages are below its name."""
    config["nav"] = ["index.md"]
    for group, pages in documents.groups().items():
        entries: list[Any] = []
        for page in pages:
            folder = page.parent.name.replace("-", " ").capitalize()
            if page.parent == DOCS:
                entries.append(_name(page))
            elif entries and isinstance(entries[-1], dict) and folder in entries[-1]:
                entries[-1][folder].append(_name(page))
            else:
                entries.append({folder: [_name(page)]})
        config["nav"].append({group: entries})


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The site has no code: what links to it is its label alone. A folder's link is to its first page."""
    here = DOCS / page.file.src_uri

    def kept(link: re.Match[str]) -> str:
        label, target = link.groups()
        there = (here.parent / target.partition("#")[0]).resolve()
        if target[0] == "#" or ":" in target or (there.is_relative_to(DOCS) and not there.is_dir()):
            return link[0]
        first = min(there.glob("*.md"), default=None) if there.is_relative_to(DOCS) else None
        return f"[{label}]({target.rstrip('/')}/{first.name})" if first else label

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^()\s]+)\)", kept, markdown)
