"""The `slurmstack` command in a process of its own, without the second that it takes to load.

A server that has loaded the command once forks a process for each call: real exit statuses, signals and output of the
programs that it starts, as from a shell. `tests/programs/cli/test_command.py` and `tests/e2e/test_make_up.py` start the
command the slow way, as it is installed.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.stacks import ROOT

_LOADED = (
    "cli.app",
    "cli.commands.access",
    "cli.commands.cluster",
    "cli.commands.health",
    "cli.commands.stack",
    "cli.commands.status",
    "components.cluster",
    "components.clouds.connect",
    "components.clouds.nebius.cloud",
    *(f"pulumi_kubernetes.{group}" for group in ("apps.v1", "batch.v1", "core.v1", "helm.v3", "policy.v1", "rbac.v1")),
)
"""What most calls need. `pulumi` comes with it; the classes of Kubernetes do only where they are named."""

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload([__name__, *_LOADED])


def run(
    arguments: Sequence[str], environment: Mapping[str, str], *, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `slurmstack` in the project's root, without a terminal.

    Raises subprocess.TimeoutExpired after `timeout` seconds, when it has been killed.
    """
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        process = _server.Process(target=_command, args=(list(arguments), dict(environment), str(out), str(err)))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["slurmstack", *arguments], timeout or 0)
        code = process.exitcode
        process.close()
        return subprocess.CompletedProcess(
            ["slurmstack", *arguments], code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


def run_from_cold(
    arguments: Sequence[str], environment: Mapping[str, str], *, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """The same as users have it, with all that it loads: what figures are measured by."""
    return subprocess.run(
        [sys.executable, "-m", "cli.entry", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def _command(arguments: list[str], environment: dict[str, str], out: str, err: str) -> None:
    """In the new process: become the command."""
    for target, (path, flags) in enumerate(
        ((os.devnull, os.O_RDONLY), (out, os.O_WRONLY | os.O_CREAT), (err, os.O_WRONLY | os.O_CREAT))
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = ["slurmstack", *arguments]
    from cli.entry import main  # noqa: PLC0415  only where the command runs

    main()
