"""The real Pulumi engine, where its command is on PATH."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console

from cli.errors import USAGE, Failure
from cli.stack import IS_CHECKOUT, PROJECT_ROOT, Stack
from local.report import RichReport

ENGINES = ("auto", "pulumi", "kubectl")

_NO_STACK = "no stack named"
"""In Pulumi's complaint about a stack that its backend does not know."""

_LOCKED = re.compile("currently locked|update is currently in progress")
"""In its complaint that another update is at work: of a backend of files, and of Pulumi's own service."""


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


def run(stack: Stack, command: Sequence[str], **environment: str) -> int:
    """Hand the terminal to `pulumi COMMAND` for this stack; returns its exit status.

    Pulumi's own display, prompts and handling of Ctrl-C are better than anything that we could put in front of them.
    """
    with _leave_ctrl_c_to_pulumi():
        return subprocess.run(_command(stack, command), env=_environment() | environment, check=False).returncode


@contextmanager
def _leave_ctrl_c_to_pulumi() -> Iterator[None]:
    """Let Pulumi, which the terminal tells of Ctrl-C too, bring its update to an orderly end.

    Python would kill it a quarter of a second later, with the stack locked and what was being made in doubt.
    """
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def preview(stack: Stack) -> tuple[int, str]:
    """Exit status and output of `pulumi preview --json`."""
    command = _command(stack, ["preview", "--refresh", "--diff", "--json"])
    # With --json Pulumi tells nothing of its progress.
    report = RichReport(Console(stderr=True, highlight=False)) if sys.stderr.isatty() else None
    with report.step("Pulumi looks at all resources") if report else nullcontext():
        done = subprocess.run(command, env=_environment(), check=False, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def export(stack: Stack) -> dict[str, Any]:
    """What Pulumi's state holds of this stack, secrets encrypted. Nothing is asked of the cloud.

    A stack that is not there is made, empty: the engine previews and updates only what is there.
    """
    done = _try(stack, ["stack", "export"])
    if done.returncode != 0 and _NO_STACK in done.stderr:
        _make(stack)
        done = _try(stack, ["stack", "export"])
    document: dict[str, Any] = json.loads(_done(done, f"pulumi cannot read the stack {stack.name!r}"))
    return document


def refuse_locked(stack: Stack) -> None:
    """Raise Failure if another update of the stack is at work, or was killed: `pulumi destroy` could not be run.

    Nothing is asked of the cloud: refreshing the entry of the stack itself does no more than take the lock. Whatever
    else it complains of, `pulumi destroy` says as well.
    """
    deployment = export(stack).get("deployment") or {}
    root = [item["urn"] for item in deployment.get("resources") or [] if item["type"] == "pulumi:pulumi:Stack"]
    if not root:  # never applied
        return
    command = _command(stack, ["refresh", "--yes", "--skip-preview", "--target", *root])
    done = subprocess.run(command, env=_environment(), check=False, capture_output=True, text=True)
    if not _LOCKED.search(done.stdout + done.stderr):
        return
    free = f"nothing was touched. If no other update is at work, {_free(stack)}"
    _done(done, f"pulumi cannot change {stack.name!r} now", hint=free)


def resume(stack: Stack, document: Mapping[str, Any]) -> dict[str, str]:
    """Let an update that was killed be repeated; `document` is what `export` gave. Returns what `run` needs for that.

    What was being made then may be there or not, and Pulumi would refuse it as "already exists" for ever. Objects of
    Kubernetes and random values can be made once more; of anything else Pulumi goes on to say what is to be done.
    """
    deployment = document.get("deployment") or {}
    pending = deployment.get("pending_operations") or []
    left = [operation for operation in pending if not _can_be_repeated(operation)]
    if left == pending:
        return {}
    cleared = {**document, "deployment": {**deployment, "pending_operations": left}}
    done = _try(stack, ["stack", "import"], stdin=json.dumps(cleared))
    free = f"if no other update is at work, {_free(stack)}"
    _done(done, f"an earlier update of {stack.name!r} was cut short", hint=free)
    return {"PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true"}


def _can_be_repeated(operation: Mapping[str, Any]) -> bool:
    kind = str(operation["resource"]["type"])
    return operation["type"] == "creating" and kind.startswith(("kubernetes:", "random:")) and "helm.sh" not in kind


def output(stack: Stack, name: str) -> str | None:
    """An output of the stack that is no secret; None if the stack has none of this name, or was never applied."""
    done = _try(stack, ["stack", "output", name])
    if done.returncode != 0 and ("does not have output" in done.stderr or _NO_STACK in done.stderr):
        return None
    return _done(done, f"pulumi cannot read the stack {stack.name!r}")


def _command(stack: Stack, command: Sequence[str]) -> list[str]:
    where = ["--cwd", str(PROJECT_ROOT), "--stack", stack.name, "--config-file", str(stack.file.resolve())]
    return ["pulumi", *command, *where]


def _environment() -> dict[str, str]:
    return {
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **os.environ,
        "PULUMI_PYTHON_CMD": str(PROJECT_ROOT / ".venv" / "bin" / "python") if IS_CHECKOUT else sys.executable,
    }


def _try(
    stack: Stack, command: Sequence[str], *, stdin: str | None = None, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    where = ["pulumi", *command, "--cwd", str(PROJECT_ROOT), "--stack", stack.name]
    env = _environment()
    return subprocess.run(where, env=env, check=False, capture_output=True, text=True, input=stdin, timeout=seconds)


def _make(stack: Stack) -> None:
    """Make the stack in the backend. The one that the user has selected for his own `pulumi` stays selected."""
    own = PROJECT_ROOT / f"Pulumi.{stack.name}.yaml"
    existed = own.exists()
    done = _try(stack, ["stack", "init", "--no-select"])
    if not existed and stack.file.resolve() != own:
        own.unlink(missing_ok=True)  # making a stack writes one, but this stack's file is elsewhere
    _done(done, f"pulumi cannot make the stack {stack.name!r}")


def _done(done: subprocess.CompletedProcess[str], otherwise: str, *, hint: str = "") -> str:
    """What pulumi has printed. Raises Failure with its words if it has failed."""
    if done.returncode != 0:
        raise Failure(f"{otherwise}: {(done.stderr or done.stdout).strip()}", hint=hint)
    return done.stdout


def _free(stack: Stack) -> str:
    return f"free the stack and run this again: pulumi cancel --yes --cwd {PROJECT_ROOT} {stack.name}"
