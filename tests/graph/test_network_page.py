"""docs/network.md has the connections that the policies open, and speaks of each component."""

from __future__ import annotations

from typing import Final

import pytest

from cli.program.recording import record
from config import load_config
from slurm.network import FREE, NODES, links, outside
from tests import stacks
from tests.graph.reachability import network
from tests.stacks import ROOT, with_change

CALLED: Final = {
    NODES: "login nodes and workers", "controller": "slurmctld", "slurmdbd": "slurmdbd", "database": "the database",
    "health-watch": "health-watch", "policy": "the policy's Job", "rest": "REST API", "exporter": "the exporter",
    "configuration": "the Jobs that wait for the configuration", "prometheus": "Prometheus",
    "node-exporter": "node exporters", "kube-state": "kube-state-metrics", "log-shipper": "log shipper",
    "jail": "the Job that fills the jail", "users": "the Job that makes users",
    "backup": "backups", "elastic": "`elastic`",
}  # fmt: skip
"""Component -> its name on the page."""

MONITORING: Final = {"install": True, "nodes": True, "kube_state": True, "kube_state_image": "h.example/kube-state:1"}
OTLP: Final = {"endpoint": "https://loki.example.com/otlp", "image": "h.example/contrib:1"}

PAGE: Final = (ROOT / "docs/network.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sections() -> dict[str, object]:
    """With every component, and with a Slurm that gives figures itself."""
    everything = with_change(stacks.existing_full(), "monitoring", MONITORING) | {"logs": {"otlp": OTLP}}
    everything = with_change(everything, "worker_nodes.gpu.size", {"max": 2})
    return everything | {"dashboard": {"enabled": True}, "slurm": {"version": "26.05"}}


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


def test_the_table_has_each_connection_and_no_other(sections: dict[str, object]) -> None:
    opened = {(link.source, link.target, str(link.port or "all")) for link in links(load_config(sections))}
    assert opened - rows() == set(), "open, and not in docs/network.md"
    assert rows() - opened == set(), "in docs/network.md, and not open"


def test_the_page_speaks_of_each_component(sections: dict[str, object]) -> None:
    made = set(network(record(sections, stack="prod")).pods) - {"login", "worker"}
    assert made | {NODES} == set(CALLED)
    beside = PAGE.partition("## Other pods\n")[2].partition("\n## ")[0]
    beyond = {*FREE, *outside(load_config(sections))} - {NODES}
    assert {one for one in beyond if CALLED[one] not in beside} == set()
    connected = {end for source, target, _ in rows() for end in (source, target)}
    assert {one for one in CALLED if one not in connected and CALLED[one] not in beside} == set()
