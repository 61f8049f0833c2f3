"""Which stack a command works on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import ClusterConfig, ConfigError, Problem, load_config
from config.load import PROJECT, check_keys, encrypted_problem, plain, read_document, sections_of

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
    path = file or directory / f"Pulumi.{_wanted()}.yaml"
    document = read_document(path)
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    name = stem.removeprefix("Pulumi.").replace(".", "-") or DEFAULT_STACK
    sections = sections_of(document, where=path)
    if document.get("environment"):
        sections = _with_environments(path, name)
    return Stack(name=name, file=path, sections=sections, config=load_config(sections))


def _wanted() -> str:
    """The stack that the environment names. Raises ConfigError if that is a file: its path would be nonsense."""
    name = os.environ.get("SLURMSTACK_STACK", DEFAULT_STACK)
    if "/" in name or name.startswith("Pulumi.") or name.endswith((".yaml", ".yml")):
        stem = Path(name).name.removesuffix(".yaml").removesuffix(".yml").removeprefix("Pulumi.")
        message = f"{name!r} is a file, and the name of a stack belongs there: {stem}; a file is named by --config"
        raise ConfigError([Problem(where="SLURMSTACK_STACK", message=message)])
    return name


def _with_environments(file: Path, name: str) -> dict[str, Any]:
    """Our sections together with what Pulumi ESC's environments add to them. Secrets in them are not even opened."""
    if shutil.which("pulumi") is None:
        message = "imports environments of Pulumi ESC, which only the pulumi command can open, and it is not on PATH; "
        message += "install it, or write what they set below pulumiConfig: into this file and remove `environment:`"
        raise ConfigError([Problem(where=f"{file}: environment", message=message)])
    where = ["--cwd", str(PROJECT_ROOT), "--stack", name, "--config-file", str(file.resolve())]
    command = ["pulumi", "config", "--json", "--open", *where]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        message = f"`pulumi config --open` cannot open it: {(done.stderr or done.stdout).strip()}"
        raise ConfigError([Problem(where=f"{file}: environment", message=message)])
    opened = json.loads(done.stdout)
    check_keys(opened)
    prefix = f"{PROJECT}:"
    values = {key[len(prefix) :]: value for key, value in opened.items() if key.startswith(prefix)}
    encrypted = [key for key, value in values.items() if value["secret"]]
    if encrypted:
        raise ConfigError(encrypted_problem(key) for key in encrypted)
    return {key: plain(value["value"]) for key, value in values.items()}
