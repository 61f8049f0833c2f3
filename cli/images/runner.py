"""Running an image tool: each line is told and kept in a log, and a failure shows the last of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import Failure
from local.buildah import refusal
from local.shell import follow

_LAST_LINES = 12

_EXPLANATIONS = (
    (
        r"HTTP response to HTTPS client",
        "the registry speaks plain HTTP",
        "add --no-tls-verify if that is wanted (docker: list it under insecure-registries in daemon.json)",
    ),
    (
        r"x509:|certificate (signed|is not|has expired)|tls: ",
        "the registry's certificate is not trusted",
        "install its CA certificate",
    ),
    (
        r"unauthorized|authentication required|no basic auth|invalid username/password|denied:|access denied|403 Forb",
        "the registry refuses the credentials, or they may not push there",
        "log in with `{login}` as an account that may push to {registry}",
    ),
    (
        r"no such host|connection refused|i/o timeout|network is unreachable|no route to host|dial tcp",
        "a registry cannot be reached",
        "check its name, the network and the proxy settings of {tool}",
    ),
    (
        r"toomanyrequests|rate limit",
        "the base image's registry limits pulls",
        "log in to it, or name a mirror's with --base",
    ),
    (
        r"no space left on device|disk quota exceeded",
        "the disk is full",
        "the images of one Slurm version need about 4 GB",
    ),
)
"""What tools and registries say -> what it means, what to do. The first that is found wins."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs the commands of one `slurmstack images` command, with one log."""

    log: Path
    tool: str
    login: str
    """Command that logs in to the registry."""
    registry: str

    def start(self) -> None:
        """Begin the log anew. It holds what the tools print; none of them prints credentials."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")

    def run(
        self,
        command: Sequence[str],
        *,
        doing: str,
        on_line: Callable[[str], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Run a command to its end and return its last lines. Raises Failure with them; Ctrl-C stops it."""
        with self.log.open("a", encoding="utf-8") as log:

            def keep(line: str) -> None:
                log.write(line + "\n")
                log.flush()
                if on_line is not None:
                    on_line(line)

            log.write(f"$ {' '.join(command)}\n")
            try:
                status, lines = follow(command, keep, env=env)
            except OSError as error:
                raise Failure(f"{command[0]} cannot be run: {error}") from error
        if status != 0:
            raise self.failure(doing, lines)
        return lines

    def failure(self, doing: str, lines: Sequence[str]) -> Failure:
        """What to tell when a command failed: the reason if it is a known one, the last lines, and where all are."""
        if reason := refusal(lines):
            return Failure(f"{doing} failed: {reason}", hint=f"the whole log: {self.log}")
        tail = lines[-_LAST_LINES:]
        reason, advice = explain("\n".join(tail))
        message = f"{doing} failed" + (f": {reason}" if reason else "")
        if tail:
            message += f"; the last lines of {self.tool}:\n" + "\n".join(f"  {line}" for line in tail)
        advice = advice.format(login=self.login, registry=self.registry, tool=self.tool)
        return Failure(message, hint="\n".join(filter(None, [advice, f"the whole log: {self.log}"])))


def explain(output: str) -> tuple[str, str]:
    """The meaning of what a tool said, and what to do about it; empty where we do not know better."""
    for pattern, reason, advice in _EXPLANATIONS:
        if re.search(pattern, output, re.IGNORECASE):
            return reason, advice
    return "", ""
