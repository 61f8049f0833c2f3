"""docs/network.md has the connections that the policies open, and speaks of each component."""

from __future__ import annotations

from typing import Any, Final

import pytest

from config import load_config
from slurm.network import FREE, NODES, links, outside
from tests.graph.objects import everything, recorded
from tests.graph.reachability import network
from tests.stacks import ROOT

CALLED: Final = {
    NODES: "login nodes and workers", "controller": "slurmctld", "slurmdbd": "slurmdbd", "database": "the database",
    "health-watch": "health-watch", "policy": "the policy's Job", "rest": "REST API", "exporter": "the exporter",
    "configuration": "the Jobs that wait for the configuration", "prometheus": "Prometheus",
    "kube-state": "kube-state-metrics", "log-shipper": "log shipper",
    "jail": "the Job that fills the jail", "users": "the Job that makes users",
    "images": "the Job that tries images", "backup": "backups", "elastic": "`elastic`",
}  # fmt: skip
"""Component -> its name on the page."""


PAGE: Final = (ROOT / "docs/network.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sections() -> dict[str, Any]:
    """With every component, but without SSSD, which lets daemons reach the directory."""
    found = everything()
    del found["sssd"]
    return found


def rows() -> set[tuple[str, str, str]]:
    """From, to and port of each connection between two components, as the table has them."""
    table = PAGE.partition("## Inside the namespace\n")[2].partition("\n## ")[0]
    found = set()
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith(("| from", "| ---", "| everybody", "| pods of other")):
            source, target, port = (cell.strip() for cell in line.strip("|").split(" | "))
            target = source if target == "each other" else target
            ends = [[one for one, name in CALLED.items() if name in cell] for cell in (source, target)]
            assert all(ends), f"a row of nobody that is known here: {line}"
            ports = ["all"] if port.startswith("all") else port.split(", ")
            found |= {(one, other, number) for one in ends[0] for other in ends[1] for number in ports}
    return found


def test_the_table_has_each_connection_and_no_other(sections: dict[str, Any]) -> None:
    opened = {(link.source, link.target, str(link.port or "all")) for link in links(load_config(sections))}
    assert opened - rows() == set(), "open, and not in docs/network.md"
    assert rows() - opened == set(), "in docs/network.md, and not open"


def test_the_page_speaks_of_each_component(sections: dict[str, Any]) -> None:
    made = set(network(recorded(sections)).pods) - {"login", "worker"}
    assert made | {NODES} == set(CALLED)
    beside = PAGE.partition("## Other pods\n")[2].partition("\n## ")[0]
    beyond = {*FREE, *outside(load_config(sections))} - {NODES}
    assert {one for one in beyond if CALLED[one] not in beside} == set()
    connected = {end for source, target, _ in rows() for end in (source, target)}
    assert {one for one in CALLED if one not in connected and CALLED[one] not in beside} == set()
