from __future__ import annotations

from typing import Any

from local import addresses, firewall


def _chain(**changes: Any) -> dict[str, Any]:
    chain = {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward"}
    return {"chain": {**chain, "policy": "drop", **changes}}


def test_forward_chains_that_drop_or_reject_are_opened_and_nothing_else_is_touched() -> None:
    others = [_chain(hook="input"), _chain(family="ip6"), _chain(table="slurmstack"), {"rule": {}}, {"metainfo": {}}]
    others.append(_chain(policy="accept"))
    docker = _chain()
    firewalld = _chain(
        family="inet", table="firewalld", name="filter_FORWARD", policy="accept"
    )  # it rejects at the end
    assert firewall.closed_forward_chains([*others, docker, firewalld]) == [
        ("ip", "filter", "FORWARD"),
        ("inet", "firewalld", "filter_FORWARD"),
    ]


def test_traffic_between_nodes_and_pods_keeps_its_source_address() -> None:
    text = firewall.table_text(addresses.from_environment({}), "slurmstack:/x")
    assert 'oifname != "slurmstack0" masquerade' in text
