"""Which release of Slurm can follow which."""

from __future__ import annotations

from typing import get_args

import pytest

from config.sections.slurm import Slurm
from slurm.names import RELEASES, obstacle


def test_ours_are_known_and_the_newer_may_follow_the_older() -> None:
    older, newer = get_args(Slurm.model_fields["version"].annotation)
    assert {older, newer} <= set(RELEASES)
    assert obstacle(older, newer) is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("24.11", "24.11", "runs already"),
        ("26.05", "24.11", "never read what a newer one"),
        ("24.05", "26.05", "more than 3 releases: go by way of 25.11"),
    ],
)
def test_what_cannot_follow_says_why(old: str, new: str, why: str) -> None:
    assert why in str(obstacle(old, new))
