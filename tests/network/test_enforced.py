"""What the tests work out from the policies' text is what a network plugin makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program.recording import manifests, record
from tests import stacks
from tests.graph.reachability import network
from tests.network.wires import CALICO, Wires

OUTSIDE = (
    "151.101.0.223", "203.0.113.7", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "168.63.129.16", "100.100.100.200",
)  # fmt: skip
"""Public and private addresses, and where clouds hand out credentials."""
SOMEBODY = "203.0.113.7"
PORTS = (22, 53, 80, 443, 3306, 3307, 6443, 6817, 6818, 6819, 6820, 8817, 10250, 45678)


@pytest.mark.skipif(not CALICO, reason="CALICO names no directory with Felix, which takes six minutes to build")
def test_every_pair_is_open_or_closed_as_the_policies_text_says(tmp_path: Path) -> None:
    recording = record(stacks.existing_full(), stack="prod")
    wanted = network(recording)
    with Wires(tmp_path, wanted.pods, OUTSIDE, PORTS) as wires:
        assert all(wires.reaches("worker").values()), "without Felix everything is open"
        wires.enforce(item.document for item in manifests(recording) if item.kind == "NetworkPolicy")

        found = {
            pair: there for source in (*wires.addresses, SOMEBODY) for pair, there in wires.reaches(source).items()
        }

    assert {pair: there for pair, there in found.items() if there != wanted.allows(*pair)} == {}
    assert len(found) > 3000
