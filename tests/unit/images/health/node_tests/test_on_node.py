"""What the batch script makes of what it finds, and that it needs nothing of ours."""

from __future__ import annotations

import json

import pytest

from images.health.node_tests import on_node
from images.health.node_tests.slurm import SCRIPT


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", '"', "\\", "\x01"])
def test_a_comment_is_never_longer_than_slurm_allows(character: str) -> None:
    for text in (character * 5000, "\n".join([character * 90] * 50)):
        for pattern in (".*", "nothing"):
            comment = on_node.told(0, text, pattern, character * 300)
            assert len(comment) <= on_node.LONGEST
            assert json.loads(comment).get("cut") or pattern == "nothing"


@pytest.mark.parametrize(
    ("listing", "platform"),
    [("", ""), ("NVIDIA H200\n", "1x NVIDIA H200"), ("a\na\n\n", "2x a"), ("a\nb\n", "")],
)
def test_a_platform_is_a_number_of_gpus_of_one_model(listing: str, platform: str) -> None:
    assert on_node.platform_of(listing) == platform


def test_groups_of_the_pattern_are_kept_where_it_has_some() -> None:
    assert on_node.kept("a=1   b=2\nc=3\na=4 b=5", r"a=(\d) b=(\d)") == "1 2\n4 5"


def test_it_needs_nothing_of_ours() -> None:
    assert SCRIPT.read_text().startswith("#!/usr/bin/python3 -I\n")
    assert "from images" not in SCRIPT.read_text()
