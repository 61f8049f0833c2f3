"""What counts as a node that the proof of a new cluster may use."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from cli.change.verify import as_user, usable
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


def test_a_node_is_usable_that_has_registered_from_the_pod_that_runs_now() -> None:
    stale = "default-0|10.0.0.7|\ndefault-1|10.0.1.5|\n"  # the second was saved before a power cut
    assert usable(Cluster(sinfo=stale), "slurm") == {"default-0"}
    assert usable(Cluster(sinfo=""), "slurm") == set()


def test_what_a_user_s_profile_prints_moves_no_cursor() -> None:
    cluster = Cluster(sinfo="\x1b[2Jhi\ndefault-0\n")
    assert as_user(cluster, open_stack(ROOT / "Pulumi.dev.yaml"), "alice", "hostname") == " [2Jhi\ndefault-0\n"
