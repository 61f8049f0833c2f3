"""Programs of checks that are imported when they run: a node without GPUs need not pay for theirs twice a minute."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from images.common.command import Runner
from images.health.contract import Node, Result, Thresholds


def later(module: str) -> Callable[[Node, Runner, Thresholds], Result]:
    """The function `run` of a module."""

    def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
        return cast("Result", importlib.import_module(module).run(node, runner, thresholds))

    return run
