"""Moving code around changes nothing that a cluster would see."""

from __future__ import annotations

import pytest

from tests.graph.unchanged import STACKS, file_of, lines_of


@pytest.mark.parametrize("name", STACKS)
def test_the_graph_and_the_rendered_files_are_what_they_were_byte_for_byte(name: str) -> None:
    assert lines_of(name) == file_of(name).read_text(encoding="utf-8").splitlines()
