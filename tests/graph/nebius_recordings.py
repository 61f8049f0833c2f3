"""Recordings of stacks on Nebius, and what is looked for in them."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording, Registration
from cli.program.values import reveal
from components.clouds.nebius.immutable import NODE_GROUP
from tests import stacks
from tests.recordings import of_type, record
from tests.stacks import with_change

STACKS = ("nebius", "nebius_minimum", "nebius_full")
"""The example, the least and the most."""


def one(recording: Recording, type_: str, name: str) -> Registration:
    """The resource of a type and a name."""
    (found,) = [item for item in of_type(recording, type_) if item.name == name]
    return found


def groups(recording: Recording) -> dict[str, dict[str, Any]]:
    """Inputs of all node groups, by name."""
    return {item.name: reveal(item.inputs) for item in of_type(recording, NODE_GROUP)}


def minimum(path: str, value: Any) -> Recording:
    """The least stack, with one change."""
    return record(with_change(stacks.nebius_minimum(), path, value), stack="test")
