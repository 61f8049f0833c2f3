"""Sizes: a number, or bounds between which it follows what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Discriminator, model_validator

from config.base import Section


class Bounds(Section):
    """Bounds of a size that follows what is needed. Those who derive from it say what each is."""

    min: int
    max: int

    @model_validator(mode="after")
    def _in_order(self) -> Bounds:
        if self.min > self.max:
            raise ValueError(f"has min {self.min}, which is more than its max, {self.max}")
        return self


class Sized:
    """What has a `size`, a number or bounds."""

    if TYPE_CHECKING:
        size: int | Bounds

    @property
    def is_elastic(self) -> bool:
        """Whether its size follows what is needed."""
        return isinstance(self.size, Bounds)

    @property
    def most(self) -> int:
        """Nodes that there can be."""
        return self.size.max if isinstance(self.size, Bounds) else self.size

    @property
    def least(self) -> int:
        """Nodes that there are in any case."""
        return self.size.min if isinstance(self.size, Bounds) else self.size


def _form(given: object) -> str:
    return "[range]" if isinstance(given, Mapping | Bounds) else "[number]"


FORM = Discriminator(_form)
"""Which of the two a size is: their tags are not said in what is complained of (config/errors.py)."""
