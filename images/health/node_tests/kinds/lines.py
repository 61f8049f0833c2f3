"""Reading figures out of lines."""

from __future__ import annotations

import math
import re
from typing import Final

from images.health.node_tests.contract import UnreadableError

NUMBER: Final = r"(\d+(?:\.\d+)?)"


def one_figure(pattern: str, text: str) -> float:
    """The number in the group of a pattern that must be found exactly once. Raises UnreadableError."""
    found = re.findall(pattern, text, re.MULTILINE)
    if len(found) != 1:
        raise UnreadableError(f"{len(found)} figures instead of one")
    return positive(found[0])


def positive(text: str) -> float:
    """A figure of a measurement. Raises UnreadableError: none of ours is 0, whatever the hardware does."""
    try:
        value = float(text)
    except ValueError as error:
        raise UnreadableError(f"{text!r} is no figure") from error
    if not math.isfinite(value) or value <= 0:
        raise UnreadableError(f"{text!r} is no figure")
    return value
