"""A worker's place in Slurm's switch tree, seen from the worker: it takes no job before it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from images.common.slurm_node import TOPOLOGY_REASON, ControllerUnreachableError, Node
from images.common.wait import Clock

ASK_TIMES: Final = 10
ASK_AGAIN_SECONDS: Final = 0.5

STARTS_DRAINED: Final = f" State=DRAIN Reason={TOPOLOGY_REASON}"
"""Added to `slurmd --conf`. It counts only when the record is made: a node that Slurm knows keeps its state."""


def waits_for_place(node: Node, log: Callable[[str], None], clock: Clock | None = None) -> bool:
    """Whether the node must register drained, until the configuration agent has put it into the switch tree.

    Before that it can run no job, and a queued job that tries to use it is put aside for good (measured).
    """
    clock = clock or Clock()
    for _ in range(ASK_TIMES):
        try:
            return node.has_switch_tree()
        except ControllerUnreachableError as error:
            last = error
            clock.sleep(ASK_AGAIN_SECONDS)
    log(f"cannot ask whether there is a switch tree, going on: {last}")
    return False
