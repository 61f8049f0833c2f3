"""What counts as a node that the proof of a new cluster may use."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

import pytest

from cli.change.verify import _await_nodes, as_user
from cli.errors import Failure
from cli.stack import open_stack
from tests.fakes.kubectl import PlayedKubectl
from tests.stacks import ROOT


@dataclass(frozen=True, kw_only=True)
class Cluster(PlayedKubectl):
    """Two worker pods, and slurmctld's word on their nodes."""

    sinfo: str = ""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin, check
        if arguments[0] == "exec":
            return subprocess.CompletedProcess(arguments, 0, self.sinfo, "")
        pods = [
            {"metadata": {"name": name}, "status": {"podIPs": [{"ip": address}]}}
            for name, address in (("default-0", "10.0.0.7"), ("default-1", "10.0.1.8"))
        ]
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": pods}), "")


def _usable(sinfo: str) -> None:
    _await_nodes(Cluster(sinfo=sinfo), "slurm", 2, 0, lambda *_: None)


def test_nodes_at_the_addresses_of_their_pods_are_usable() -> None:
    _usable("default-0|10.0.0.7|\ndefault-1|10.0.1.8|\n")


@pytest.mark.parametrize(
    "sinfo",
    [
        "default-0|10.0.0.7|\ndefault-1|10.0.1.5|\n",  # saved before a power cut, and not registered since
        "",
    ],
    ids=["stale address", "slurmctld is silent"],
)
def test_a_node_that_has_not_registered_from_its_pod_is_waited_for(sinfo: str) -> None:
    with pytest.raises(Failure, match="of 2 nodes are usable"):
        _usable(sinfo)


def test_what_a_user_s_profile_prints_moves_no_cursor() -> None:
    cluster = Cluster(sinfo="\x1b[2Jhi\ndefault-0\n")
    assert as_user(cluster, open_stack(ROOT / "Pulumi.dev.yaml"), "alice", "hostname") == " [2Jhi\ndefault-0\n"
