"""What a reader of a wrong stack file is told."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from tests import stacks


def complaints(sections: dict[str, Any]) -> list[str]:
    """Every problem that is found, as a reader sees it."""
    with pytest.raises(ConfigError) as caught:
        load_config(sections)
    return [str(problem) for problem in caught.value.problems]


def with_sections(**sections: Any) -> dict[str, Any]:
    """The stack on somebody's cluster with one of everything, with these sections replaced or added."""
    return {**stacks.existing(), **sections}


def document(sections: dict[str, Any]) -> dict[str, Any]:
    """A whole stack file with these sections."""
    return {"config": {f"slurmstack:{name}": section for name, section in sections.items()}}
