"""What the site is told by tests/site.py; that it builds is tried by `make site`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import site
from tests.documents import DOCS, INDEX


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[the program](../__main__.py)", "the program"),
        ("[jobs](first-jobs.md#login)", "[jobs](first-jobs.md#login)"),
        ("[why](decisions/)", "[why](decisions/delivery.md)"),
        ("[above](#above) [out](https://example.com)", "[above](#above) [out](https://example.com)"),
        ("![a picture](images/overview.svg)", "![a picture](images/overview.svg)"),
    ],
)
def test_links_to_code_are_their_labels(written: str, shown: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=INDEX.relative_to(DOCS).as_posix()))
    assert site.on_page_markdown(written, page) == shown
