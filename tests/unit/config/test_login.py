"""Login nodes: how many there are, and what memory."""

from __future__ import annotations

import pytest

from config import load_config
from config.nebius.cloud import NebiusCloud
from tests import stacks
from tests.stacks import dev, with_change
from tests.unit.config.messages import complaints, with_sections


def test_there_are_two_unless_the_stack_file_says_otherwise() -> None:
    assert load_config(dev() | {"login": {}}).login.size == 2
    assert load_config(dev() | {"login": {"size": 3}}).login.size == 3


def test_on_nebius_there_is_room_for_all_of_them() -> None:
    sections = with_change(stacks.nebius(), "login", {"size": 50, "cpu": "8"})
    (told,) = complaints(with_change(sections, "cloud.login_nodes", {"max_size": 4}))
    assert "and login.size is 50" in told
    assert isinstance(load_config(stacks.nebius()).cloud, NebiusCloud)


@pytest.mark.parametrize(
    ("memory", "limit", "expected"), [("128Mi", None, "8Gi"), ("16Gi", None, "16Gi"), ("1Gi", "2Gi", "2Gi")]
)
def test_a_login_node_may_have_more_memory_than_it_asks_for(memory: str, limit: str | None, expected: str) -> None:
    config = load_config(with_sections(login={"memory": memory, "memory_limit": limit}))
    assert config.login.most_memory == expected
