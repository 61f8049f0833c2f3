"""What the stack file gives a worker's node: the document in NODE_CONF, and what slurmd is told of it (`--conf`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

_PROFILE: Final = re.compile(r"[1-7]g\.\d+gb")
"""How the type of a part of a GPU (MIG) begins."""


@dataclass(frozen=True, kw_only=True)
class Gres:
    """A generic resource of the node."""

    name: str
    """`gpu` or `shard`."""
    count: int
    type: str = ""
    """As Slurm has it, `h100` or `1g.10gb`; empty: none."""

    def __str__(self) -> str:
        """As Slurm writes it."""
        return ":".join([self.name, *([self.type] if self.type else []), str(self.count)])


@dataclass(frozen=True, kw_only=True)
class NodeConf:
    """A node as it is to be registered."""

    cpus: int
    memory_mib: int
    features: tuple[str, ...]
    disk_mib: int | None = None
    """Of the jobs' scratch; None without."""
    gres: tuple[Gres, ...] = ()
    layout: str = ""
    """Sockets, cores and threads in Slurm's words, in place of the number of CPUs; the stack file has none."""

    @classmethod
    def parse(cls, text: str) -> NodeConf:
        """Out of the environment. Raises ValueError where it is not what the stack makes (slurm/sizing.py)."""
        try:
            found = json.loads(text)
            return cls(
                cpus=int(found["cpus"]),
                memory_mib=int(found["memory_mib"]),
                features=tuple(found["features"]),
                disk_mib=found.get("disk_mib"),
                gres=tuple(Gres(**one) for one in found["gres"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"NODE_CONF is not understood: {error!r}") from error

    @property
    def gpus(self) -> tuple[Gres, ...]:
        """Those of each type; parts of GPUs where they are divided."""
        return tuple(one for one in self.gres if one.name == "gpu")

    @property
    def is_divided(self) -> bool:
        """Whether it offers parts of GPUs (MIG)."""
        return any(_PROFILE.match(one.type) for one in self.gpus)

    @property
    def has_shards(self) -> bool:
        """Whether several jobs may have one GPU."""
        return any(one.name == "shard" for one in self.gres)

    @property
    def text(self) -> str:
        """As `slurmd --conf` takes it."""
        words = [self.layout or f"CPUs={self.cpus}", f"RealMemory={self.memory_mib}"]
        words += [f"TmpDisk={self.disk_mib}"] if self.disk_mib is not None else []
        words.append(f"Feature={','.join(self.features)}")
        words += [f"Gres={','.join(map(str, self.gres))}"] if self.gres else []
        return " ".join(words)
