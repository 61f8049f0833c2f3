"""A network of two leaf switches, and what Slurm makes of it."""

from __future__ import annotations

from tests.slurm.sandbox import SlurmSandbox

LABELS_FILE = {"topology.labels": "example/core\nexample/leaf\n"}
TREE = "TopologyPlugin=topology/tree\nTopologyParam=SwitchAsNodeRank\nEnforcePartLimits=ALL"

NODES = {f"node-{number}": {"example/core": "core", "example/leaf": "ab"[number % 2]} for number in range(4)}
"""Kubernetes nodes: the even ones below `a`."""


def leaves_of(cluster: SlurmSandbox) -> dict[str, str]:
    """Leaf switch of each node, as a user sees it."""
    shown = cluster.run("scontrol show topology").stdout
    lines = [dict(word.partition("=")[::2] for word in line.split()) for line in shown.splitlines()]
    return {
        name: line["SwitchName"]
        for line in lines
        if line.get("Level") == "0" and line["Nodes"]
        for name in cluster.run(["scontrol", "show", "hostnames", line["Nodes"]]).stdout.split()
        if name != "none"
    }
