"""`rolling`: how many nodes may be away at once for their new pods."""

from __future__ import annotations

import pytest

from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints


def test_a_tenth_of_a_pool_unless_somebody_says_something_else() -> None:
    assert load_config(stacks.existing()).rolling.max_unavailable == "10%"


@pytest.mark.parametrize("value", [1, 5000, "1%", "100%"])
def test_it_is_a_number_of_nodes_or_a_percentage(value: int | str) -> None:
    sections = with_change(stacks.existing(), "rolling.max_unavailable", value)
    assert load_config(sections).rolling.max_unavailable == value


@pytest.mark.parametrize("value", [0, -1, 5001, "0%", "101%", "10", "ten", 0.5, True])
def test_anything_else_is_refused_with_what_it_may_be(value: object) -> None:
    (told,) = complaints(with_change(stacks.existing(), "rolling.max_unavailable", value))
    assert told.startswith("rolling.max_unavailable: ")
    assert " is neither a number of nodes from 1 to 5000 nor a percentage such as 10%, from 1% to 100%" in told
