"""Prices: how they are written, and what they may name."""

from __future__ import annotations

from config import load_config
from tests import stacks
from tests.stacks import with_change


def test_a_currency_alone_is_no_price_and_nothing_is_a_price() -> None:
    assert not load_config(stacks.dev()).prices.are_given
    assert not load_config(with_change(stacks.dev(), "prices.currency", "EUR")).prices.are_given
    assert load_config(with_change(stacks.dev(), "prices.load_balancer", 0)).prices.are_given
