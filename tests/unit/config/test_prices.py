"""Prices: how they are written, and what they may name."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints, minimum

WRONG: dict[str, tuple[str, Any, str]] = {
    "a currency with the price": ("pools", {"default": "28 USD"}, "pools.default: '28 USD' is not a price: write a"),
    "a number in quotes": ("pools", {"default": "28"}, "pools.default: '28' is not a price: write a number"),
    "a switch": ("load_balancer", True, "load_balancer: true is not a price"),
    "less than nothing": ("pools", {"default": -1}, "pools.default: -1 is not allowed: input should be greater than"),
    "endless": ("load_balancer", float("inf"), "load_balancer: Infinity is not allowed: input should be"),
    "no price": ("pools", {"default": None}, "pools.default: is empty: write what belongs there"),
    "no currency": ("currency", "dollars", "currency: 'dollars' is no currency: write its three capital letters"),
    "a slip": ("machine", {}, "machine: 'machine' is not a known key (valid: currency, load_balancer, machines, other"),
    "no pool": ("pools", {"defualt": 1}, "pools.defualt: 'defualt' is not a pool of worker_nodes (valid: default)"),
    "no kind of machine": ("machines", {"gpu": 1}, "machines.gpu: 'gpu' is no kind of machine: write platform/preset"),
    "a kind of disk alone": ("storage", {"NETWORK_SSD": 1}, "storage.NETWORK_SSD: 'NETWORK_SSD' is not a kind of "),
    "a name that is none": ("other", {"a\nb": 1}, "other.a\nb: 'a\\nb' is no name of at most 30 letters"),
    "a list": ("pools", [1], "pools: [1] is a list, and a map belongs here"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_price_is_told_as_it_was_written(name: str) -> None:
    key, value, said = WRONG[name]
    (told,) = complaints(with_change(stacks.dev(), f"prices.{key}", value))
    assert told.startswith(f"prices.{said}")


def test_machines_must_be_offered_and_are_not_priced_where_somebody_else_made_them() -> None:
    name = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
    load_config(minimum(("prices", {"machines": {name: 20, f"{name}/preemptible": 9.5}})))
    wrong = {"gpu-h100/8gpu-128vcpu-1600gb": 1, "gpu-h100-sxm/8gpu": 1, f"{name}/spot": 1}
    (told,) = complaints(minimum(("prices", {"machines": wrong})))
    assert told.startswith(f"prices.machines.{name}/spot: '{name}/spot' is no kind of machine: write platform/preset, ")
    del wrong[f"{name}/spot"]
    platform, preset = complaints(minimum(("prices", {"machines": wrong})))
    assert "did you mean 'gpu-h100-sxm'?" in platform
    assert preset.startswith(
        "prices.machines.gpu-h100-sxm/8gpu: '8gpu' is not a preset of gpu-h100-sxm (valid: 1gpu-16"
    )
    (machine, storage) = complaints(
        with_change(stacks.existing(), "prices", {"machines": {name: 20}, "storage": {"disk/NETWORK_SSD": 1, "a": 2}})
    )
    assert machine.endswith("(cloud.kind: nebius); write the price of a pool's node in prices.pools")
    assert storage.startswith("prices.storage.disk/NETWORK_SSD: is of clouds that make machines")


def test_a_currency_alone_is_no_price_and_nothing_is_a_price() -> None:
    assert not load_config(stacks.dev()).prices.are_given
    assert not load_config(with_change(stacks.dev(), "prices.currency", "EUR")).prices.are_given
    assert load_config(with_change(stacks.dev(), "prices.load_balancer", 0)).prices.are_given
