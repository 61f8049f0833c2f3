"""Which stack a command works on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import ClusterConfig, load_config
from config.load import read_sections

PROJECT_ROOT = Path(__file__).resolve().parent.parent

DEFAULT_STACK = "dev"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack file that has been read and checked."""

    name: str
    file: Path
    sections: Mapping[str, Any]
    config: ClusterConfig

    @property
    def private(self) -> Path:
        """Directory for what belongs to this stack and to nobody else, never committed."""
        return self.file.resolve().parent / ".slurmstack" / self.name


def open_stack(file: Path | None) -> Stack:
    """The stack of `--config FILE`, else of `$SLURMSTACK_STACK`, else `dev`. Raises ConfigError.

    The stack's name is the middle of the file's name: `Pulumi.prod.yaml` is the stack `prod`.
    """
    path = file or PROJECT_ROOT / f"Pulumi.{os.environ.get('SLURMSTACK_STACK', DEFAULT_STACK)}.yaml"
    sections = read_sections(path)
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    name = stem.removeprefix("Pulumi.").replace(".", "-") or DEFAULT_STACK
    return Stack(name=name, file=path, sections=sections, config=load_config(sections))
