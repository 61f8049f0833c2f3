"""Times of reservations and of Slurm."""

from __future__ import annotations

import pytest

from config.base import seconds


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("30", 1800), ("1:30", 90), ("1:30:00", 5400), ("2-12", 216_000), ("2-12:30", 217_800), ("1-00:00:01", 86_401),
        ("UNLIMITED", None), ("infinite", None),
    ],
)  # fmt: skip
def test_times_mean_what_slurm_means(limit: str, expected: int | None) -> None:
    assert seconds(limit) == expected
