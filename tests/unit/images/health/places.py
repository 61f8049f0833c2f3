"""A node with a root, a jail and a state directory of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from images.common.health.contract import Node

DATA = Path(__file__).parent / "data"


def make_node(tmp_path: Path, **more: object) -> Node:
    """A node with a populated jail, whose /proc, /sys and /run are empty."""
    jail = tmp_path / "jail"
    (jail / ".slurmstack").mkdir(parents=True, exist_ok=True)
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    node = Node(name="w-0", jail=jail, root=root, state=tmp_path / "state", local_disks=(root,))
    return replace(node, **more)  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
