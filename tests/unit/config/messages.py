"""What a reader of a wrong stack file is told."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from tests import stacks
from tests.stacks import with_change

POOL = "worker_nodes.default"
"""The pool of the smallest stack for Nebius."""

H100 = "8gpu-128vcpu-1600gb"
"""Its preset."""


def complaints(sections: dict[str, Any]) -> list[str]:
    """Every problem that is found, as a reader sees it."""
    with pytest.raises(ConfigError) as caught:
        load_config(sections)
    return [str(problem) for problem in caught.value.problems]


def minimum(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The smallest stack for Nebius, with values at dotted paths replaced."""
    sections = stacks.nebius_minimum()
    for path, value in changes:
        sections = with_change(sections, path, value)
    return sections


def with_sections(**sections: Any) -> dict[str, Any]:
    """The stack on somebody's cluster with one of everything, with these sections replaced or added."""
    return {**stacks.existing(), **sections}


def document(sections: dict[str, Any]) -> dict[str, Any]:
    """A whole stack file with these sections."""
    return {"config": {f"slurmstack:{name}": section for name, section in sections.items()}}
