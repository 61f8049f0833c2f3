"""The whole program under the recording monitor."""

from __future__ import annotations

from tests.graph.conftest import recording

__all__ = ["recording"]
