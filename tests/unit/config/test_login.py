"""Login nodes that follow their sessions: how that is written, and what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.nebius.cloud import NebiusCloud
from tests import stacks
from tests.stacks import dev, with_change
from tests.unit.config.messages import complaints, policy_complaint, with_sections

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no login node": ({"size": {"min": 0, "max": 2}}, "login.size.min: 0 is not allowed: input should be greater than"),
    "too many": ({"size": {"max": 101}}, "login.size.max: 101 is not allowed: input should be less than"),
    "no max": ({"size": {"min": 1}}, "login.size.max: is required but not set"),
    "less than min": ({"size": {"min": 3, "max": 2}}, "login.size: has min 3, which is more than its max, 2"),
    "a slip": ({"size": {"mni": 1, "max": 2}}, "login.size.mni: 'mni' is not a known key (valid: max, min); did"),
    "no number": ({"size": "x"}, "login.size: 'x' is not a whole number"),
    "a list": ({"size": [1, 2]}, "login.size: "),
    "no sessions": ({"size": {"max": 2}, "sessions_per_node": 0}, "login.sessions_per_node: 0 is not allowed"),
    "no time": ({"size": {"max": 2}, "idle_timeout": 600}, "login.idle_timeout: 600 is not a span of time"),
    "for ever": ({"size": {"max": 2}, "drain_timeout": 10**8}, "login.drain_timeout: 100000000 is not allowed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_size_of_it_is_told_as_it_was_written(name: str) -> None:
    login, said = WRONG[name]
    (told,) = complaints(dev() | {"login": login})
    assert told.startswith(said), told


@pytest.mark.parametrize(
    ("key", "value"), [("sessions_per_node", 20), ("idle_timeout", "10m"), ("drain_timeout", 86400)]
)
def test_what_is_for_a_range_is_refused_with_a_number(key: str, value: object) -> None:
    (told,) = complaints(dev() | {"login": {"size": 3, key: value}})
    said = f"login: has {key}, which is for a login that follows its sessions; write size: {{min: 1, max: 3}}, or leave"
    assert told.startswith(said), told


def test_a_range_and_a_number_say_how_many_there_are() -> None:
    login = load_config(dev() | {"login": {"size": {"max": 5}}}).login
    assert (login.is_elastic, login.least, login.most) == (True, 1, 5)
    fixed = load_config(dev() | {"login": {"size": 3}}).login
    assert (fixed.is_elastic, fixed.least, fixed.most) == (False, 3, 3)


def test_on_nebius_there_is_room_for_all_of_them() -> None:
    sections = with_change(stacks.nebius(), "login", {"size": {"max": 50}, "cpu": "8"})
    (told,) = complaints(with_change(sections, "cloud.login_nodes", {"max_size": 4}))
    assert "and login.size is 50" in told
    assert isinstance(load_config(stacks.nebius()).cloud, NebiusCloud)


@pytest.mark.parametrize(
    ("memory", "limit", "expected"), [("128Mi", None, "8Gi"), ("16Gi", None, "16Gi"), ("1Gi", "2Gi", "2Gi")]
)
def test_a_login_node_may_have_more_memory_than_it_asks_for(memory: str, limit: str | None, expected: str) -> None:
    config = load_config(with_sections(login={"memory": memory, "memory_limit": limit}))
    assert config.login.most_memory == expected


def test_a_limit_below_the_request_is_told() -> None:
    assert policy_complaint(login={"memory": "4Gi", "memory_limit": "2Gi"}) == (
        "login: has a memory_limit of 2Gi, which is less than its memory, 4Gi"
    )


def test_a_user_s_share_above_the_login_node_s_memory_is_told() -> None:
    limits = {"total_memory": "100Gi"}
    assert policy_complaint(login={"memory": "64Mi", "memory_limit": "64Mi", "user_limits": limits}) == (
        "login: has user_limits.total_memory: 100Gi for one user, and the login node has 64Mi for all (memory_limit); "
        "that bounds nothing. Take less, or raise memory_limit"
    )
    for fits in ({"memory_limit": "100Gi"}, {"memory": "100Gi"}):
        assert load_config(with_sections(login={**fits, "user_limits": limits})).login.user_limits.total_memory
