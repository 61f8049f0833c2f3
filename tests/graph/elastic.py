"""What the program registers with an elastic pool."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

ELASTIC = {"min": 1, "max": 64}


def recorded(size: Any, **more: Any) -> Recording:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.size", size)
    for path, value in more.items():
        sections = with_change(sections, f"worker_nodes.gpu.{path}", value)
    return record(sections, stack="prod")


def objects(recording: Recording, kind: str) -> dict[str, dict[str, Any]]:
    """Objects of a kind, by their names in Kubernetes."""
    found = [dict(reveal(item.inputs)) for item in recording if item.type.rpartition(":")[2] == kind]
    return {item["metadata"]["name"]: item for item in found}
