"""What one run on a node keeps others from doing, in other processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from images.common.health.contract import Node
from images.health import state


def in_another_process(node: Node, name: str) -> bool:
    """Whether it may run there."""
    child = os.fork()
    if child == 0:
        with state.only_me(node, name) as alone:
            os._exit(0 if alone else 1)
    return os.waitpid(child, 0)[1] == 0


def test_two_runs_at_once_are_one(tmp_path: Path) -> None:
    node = Node(name="w-0", state=tmp_path / "state")
    with state.only_me(node, "periodic") as first:
        assert first
        assert [in_another_process(node, name) for name in ("periodic", "other")] == [False, True]
    with state.only_me(node, "periodic") as later:
        assert later
    with state.only_me(replace(node, state=tmp_path / "state/periodic.lock/below"), "periodic") as unknown:
        assert unknown
