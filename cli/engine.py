"""The real Pulumi engine, where its command is on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.stack import PROJECT_ROOT, Stack

ENGINES = ("auto", "pulumi", "kubectl")


def choose(engine: str) -> str:
    """`pulumi` or `kubectl`; `auto` takes Pulumi where its command is on PATH. Failure if the wish cannot be met."""
    if engine not in ENGINES:
        raise Failure(f"--engine {engine!r} is none of {', '.join(ENGINES)}", code=USAGE)
    there = shutil.which("pulumi") is not None
    if engine == "auto":
        return "pulumi" if there else "kubectl"
    if engine == "pulumi" and not there:
        raise Failure(
            "the pulumi command is not on PATH",
            hint="install it as https://www.pulumi.com/docs/install/ says, or leave out --engine pulumi: "
            "objects are then applied with kubectl",
        )
    return engine


def run(stack: Stack, command: Sequence[str]) -> int:
    """Hand the terminal to `pulumi COMMAND` for this stack; returns its exit status.

    Pulumi's own display, prompts and handling of Ctrl-C are better than anything that we could put in front of them.
    """
    environment = {
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **os.environ,
        "PULUMI_PYTHON_CMD": str(Path(PROJECT_ROOT) / ".venv" / "bin" / "python"),
    }
    arguments = ["--cwd", str(PROJECT_ROOT), "--stack", stack.name, "--config-file", str(stack.file.resolve())]
    _select(stack, environment)
    done = subprocess.run(["pulumi", *command, *arguments], env=environment, check=False)
    return done.returncode


def _select(stack: Stack, environment: dict[str, str]) -> None:
    """Make the stack in the backend if it is not there yet."""
    own = PROJECT_ROOT / f"Pulumi.{stack.name}.yaml"
    existed = own.exists()
    command = ["pulumi", "stack", "select", "--create", stack.name, "--cwd", str(PROJECT_ROOT)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if not existed and stack.file.resolve() != own:
        own.unlink(missing_ok=True)  # making a stack writes one, but this stack's file is elsewhere
    if done.returncode != 0:
        raise Failure(f"pulumi cannot open the stack {stack.name!r}: {(done.stderr or done.stdout).strip()}")
