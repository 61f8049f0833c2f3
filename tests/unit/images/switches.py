"""Switch trees as the tests read them."""

from __future__ import annotations

from images.common.slurm_records import expand
from images.controller.topology import Path

A: Path = ("core", "a")
B: Path = ("core", "b")


def tree(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Nodes of each leaf switch, and switches below each other one."""
    leaves: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, children = line.removeprefix("SwitchName=").split(" ")
            kind, _, listed = children.partition("=")
            assert name not in leaves.keys() | inner.keys(), f"{name} twice"
            (leaves if kind == "Nodes" else inner)[name] = list(expand(listed))
    return leaves, inner
