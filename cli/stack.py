"""Which stack a command works on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import ClusterConfig, ConfigError, Problem, load_config
from config.load import read_document, sections_of

_PACKAGES = Path(__file__).resolve().parent.parent

IS_CHECKOUT = (_PACKAGES / "Pulumi.yaml").exists()
"""Whether this runs from the repository, rather than from where pip has copied the packages."""

PROJECT_ROOT = _PACKAGES if IS_CHECKOUT else _PACKAGES / "slurmstack"
"""Where Pulumi.yaml and the program lie."""

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
    directory = PROJECT_ROOT if IS_CHECKOUT else Path.cwd()
    path = file or directory / f"Pulumi.{os.environ.get('SLURMSTACK_STACK', DEFAULT_STACK)}.yaml"
    document = read_document(path)
    if isinstance(document, dict) and document.get("environment"):
        message = "imports environments of Pulumi ESC, which only the Pulumi engine would read: write what they set "
        message += "below slurmstack: into this file, and remove `environment:`"
        raise ConfigError([Problem(where=f"{path}: environment", message=message)])
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    name = stem.removeprefix("Pulumi.").replace(".", "-") or DEFAULT_STACK
    sections = sections_of(document, where=path)
    return Stack(name=name, file=path, sections=sections, config=load_config(sections))
