"""Accounts, QOS and who may use them: what is found without a cluster."""

from __future__ import annotations

from typing import Any

from config import load_config
from tests.unit.config.messages import with_sections

TEAMS: dict[str, Any] = {
    "science": {"fairshare": 70, "qos": ["normal", "high"], "default_qos": "normal"},
    "physics": {"parent": "science", "grp_tres": {"cpu": 64, "gres/gpu": 8}},
    "industry": {"fairshare": 30, "description": "paying guests"},
}
QOS: dict[str, Any] = {"high": {"priority": 100}, "low": {"max_wall": "1-0"}}
ALICE: dict[str, Any] = {"uid": 10001, "accounts": {"physics": {"fairshare": 2, "default_qos": "high"}, "industry": {}}}


def test_a_tree_of_teams_is_accepted() -> None:
    config = load_config(
        with_sections(accounts=TEAMS, qos=QOS, users={"alice": ALICE, "bob": {"uid": 10002, "accounts": ["physics"]}})
    )
    assert config.accounts["physics"].parent == "science"
    assert list(config.users["alice"].accounts) == ["physics", "industry"]
    assert config.users["bob"].accounts["physics"].fairshare == 1


def test_a_budget_may_be_larger_than_32_bits() -> None:
    year = 10_000 * 365 * 24 * 60
    config = load_config(with_sections(accounts={"a": {"grp_tres_mins": {"cpu": year}}}))
    assert config.accounts["a"].grp_tres_mins == {"cpu": year}
