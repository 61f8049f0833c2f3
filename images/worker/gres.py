"""The node's GPUs, as Slurm is to know them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

GPUS: Final = Path("/proc/driver/nvidia/gpus")
"""One directory per GPU of the machine, from the kernel's driver."""

_TYPED: Final = re.compile(r"\bGres=gpu:([a-z0-9_]+):(\d+)")


def fitting_gres(node_conf: str, log: Callable[[str], None], gpus: Path = GPUS) -> str:
    """The node's description, without the type of its GPUs where these are called otherwise.

    The type comes from the name of the cloud's platform. Slurm wants it to be a part of the name that the driver gives
    (`h100` of `nvidia_h100_80gb_hbm3`); if it is not, it drains the node ("count reported lower than configured").
    """
    typed = _TYPED.search(node_conf)
    names = _names(gpus)
    if typed is None or all(typed[1] in name for name in names):
        return node_conf
    log(f"the GPUs are called {', '.join(sorted(set(names)))}, not {typed[1]}: this node offers them without a type")
    return _TYPED.sub(r"Gres=gpu:\2", node_conf)


def _names(gpus: Path) -> list[str]:
    """Names of the GPUs as Slurm writes them: small letters, `_` for spaces."""
    names = []
    for path in sorted(gpus.glob("*/information")):
        model = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if model:
            names.append(model[1].lower().replace(" ", "_"))
    return names
