from __future__ import annotations

from typing import Any

from local import addresses, firewall


def _chain(**changes: Any) -> dict[str, Any]:
    chain = {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward"}
    return {"chain": {**chain, "policy": "drop", **changes}}


def test_a_forward_chain_that_drops_by_default_as_dockers_is_opened() -> None:
    assert firewall.closed_forward_chains([_chain()]) == [("ip", "filter", "FORWARD")]


def test_a_forward_chain_that_lets_everything_pass_is_not_touched() -> None:
    assert firewall.closed_forward_chains([_chain(policy="accept")]) == []


def test_other_hooks_other_families_and_our_own_table_are_not_touched() -> None:
    others = [_chain(hook="input"), _chain(family="ip6"), _chain(table="slurmstack"), {"rule": {}}, {"metainfo": {}}]
    assert firewall.closed_forward_chains(others) == []


def test_firewalld_rejects_at_the_end_of_an_accepting_chain_and_is_opened_too() -> None:
    chain = _chain(family="inet", table="firewalld", name="filter_FORWARD", policy="accept")
    assert firewall.closed_forward_chains([chain]) == [("inet", "firewalld", "filter_FORWARD")]


def test_traffic_between_nodes_and_pods_keeps_its_source_address() -> None:
    text = firewall.table_text(addresses.from_environment({}), "slurmstack:/x")
    assert 'oifname != "slurmstack0" masquerade' in text
