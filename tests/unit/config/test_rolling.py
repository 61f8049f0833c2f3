"""`rolling`: how many nodes may be away at once for their new pods."""

from __future__ import annotations

import pytest

from config import load_config
from tests import stacks
from tests.stacks import with_change


def test_a_tenth_of_a_pool_unless_somebody_says_something_else() -> None:
    assert load_config(stacks.existing()).rolling.max_unavailable == "10%"


@pytest.mark.parametrize("value", [1, 5000, "1%", "100%"])
def test_it_is_a_number_of_nodes_or_a_percentage(value: int | str) -> None:
    sections = with_change(stacks.existing(), "rolling.max_unavailable", value)
    assert load_config(sections).rolling.max_unavailable == value
