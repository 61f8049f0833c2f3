"""NODE_CONF as the stack makes it, from how tests write a node: in Slurm's words."""

from __future__ import annotations

import dataclasses
import json

from images.common.slurm_node import Gres, NodeConf


def conf(text: str) -> NodeConf:
    """`CPUs=2 RealMemory=1000 TmpDisk=5 Feature=a,b Gres=gpu:h100:2,shard:4`; what is missing is nothing."""
    said = dict(word.split("=", 1) for word in text.split())
    layout = [word for word in text.split() if word.startswith(("CPUs=", "Sockets=", "CoresPer", "ThreadsPer"))]
    gres = [part.split(":") for part in said.get("Gres", "").split(",") if part]
    return NodeConf(
        cpus=int(said.get("CPUs", 0)),
        memory_mib=int(said.get("RealMemory", 0)),
        features=tuple(filter(None, said.get("Feature", "").split(","))),
        disk_mib=int(said["TmpDisk"]) if "TmpDisk" in said else None,
        gres=tuple(Gres(name=name, type="".join(kind), count=int(count)) for name, *kind, count in gres),
        layout=" ".join(layout) if "CoresPerSocket" in said else "",
    )


def document(text: str) -> str:
    """The environment variable."""
    found = dataclasses.asdict(conf(text))
    return json.dumps({name: value for name, value in found.items() if value is not None and name != "layout"})
