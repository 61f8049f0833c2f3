"""Words for what a change does to a job."""

from __future__ import annotations

import pytest

from cli.change.job_effects import span
from tests.unit.cli.change.small_stack import WEEK


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(30, "30 seconds"), (60, "1 minute"), (5400, "90 minutes"), (WEEK + 30, "7 days"), (100000, "27 hours")],
)
def test_time_spans_are_said_as_people_say_them(seconds: int, text: str) -> None:
    assert span(seconds) == text
