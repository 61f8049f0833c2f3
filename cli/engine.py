"""The real Pulumi engine, where its command is on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

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
    _select(stack)
    return subprocess.run(_command(stack, command), env=_environment(), check=False).returncode


def read(stack: Stack, command: Sequence[str]) -> tuple[int, str]:
    """Exit status of `pulumi COMMAND` for this stack, and what it prints on its standard output."""
    _select(stack)
    done = subprocess.run(_command(stack, command), env=_environment(), check=False, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def export(stack: Stack) -> dict[str, Any]:
    """What Pulumi's state holds of this stack, secrets encrypted. Nothing is asked of the cloud."""
    _select(stack)
    document: dict[str, Any] = json.loads(_ask(stack, ["stack", "export"]))
    return document


def output(stack: Stack, name: str) -> str | None:
    """An output of the stack that is no secret; None if the stack has none of this name, or was never applied."""
    done = _try(stack, ["stack", "output", name])
    if done.returncode != 0 and ("does not have output" in done.stderr or "no stack named" in done.stderr):
        return None
    if done.returncode != 0:
        raise Failure(f"pulumi cannot read the stack {stack.name!r}: {done.stderr.strip()}")
    return done.stdout


def _command(stack: Stack, command: Sequence[str]) -> list[str]:
    where = ["--cwd", str(PROJECT_ROOT), "--stack", stack.name, "--config-file", str(stack.file.resolve())]
    return ["pulumi", *command, *where]


def _environment() -> dict[str, str]:
    return {
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **os.environ,
        "PULUMI_PYTHON_CMD": str(PROJECT_ROOT / ".venv" / "bin" / "python"),
    }


def _try(stack: Stack, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    where = ["--cwd", str(PROJECT_ROOT), "--stack", stack.name]
    return subprocess.run(["pulumi", *command, *where], env=_environment(), check=False, capture_output=True, text=True)


def _ask(stack: Stack, command: Sequence[str]) -> str:
    done = _try(stack, command)
    if done.returncode != 0:
        raise Failure(f"pulumi cannot read the stack {stack.name!r}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _select(stack: Stack) -> None:
    """Make the stack in the backend if it is not there yet."""
    own = PROJECT_ROOT / f"Pulumi.{stack.name}.yaml"
    existed = own.exists()
    command = ["pulumi", "stack", "select", "--create", stack.name, "--cwd", str(PROJECT_ROOT)]
    done = subprocess.run(command, env=_environment(), check=False, capture_output=True, text=True)
    if not existed and stack.file.resolve() != own:
        own.unlink(missing_ok=True)  # making a stack writes one, but this stack's file is elsewhere
    if done.returncode != 0:
        raise Failure(f"pulumi cannot open the stack {stack.name!r}: {(done.stderr or done.stdout).strip()}")
