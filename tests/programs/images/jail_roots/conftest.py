"""An image of the jail, and the jail's volume."""

from __future__ import annotations

from tests.unit.images.jail_roots.conftest import source, volume

__all__ = ["source", "volume"]
