"""docker, podman and buildah, all called as docker is: they build the images of all roles, and push them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.images.names import ImageNames
from local.images import ensure_images, image_store
from local.report import Report, Step
from local.shell import follow
from slurm.images import DEBIAN_SUITES, ROLES, SOURCES

OnLine = Callable[[str], None]

TOOLS = ("docker", "podman", "buildah")
"""In the order in which they are tried."""

LOCAL = "local"
"""The buildah that the local cluster fetched for itself, with its own image store."""

_LAST_LINES = 12

_PUSHED = re.compile(r"^(?:.*digest: )?(sha256:[0-9a-f]{64})")
"""How docker says what the registry now has, or the file into which podman and buildah write it."""


def _environment() -> dict[str, str]:
    # An attestation would make the image an index of two manifests, which `kind load` cannot import. And buildah alone
    # would run each step of a build again each time.
    return {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1", "BUILDAH_LAYERS": "true"}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool with an image store of its own."""

    name: str
    """Of the program."""
    log: Path
    """Holds all that the tool prints; none of them prints credentials."""
    launcher: tuple[str, ...] = ()
    """What comes before the program's name."""
    environment: Mapping[str, str] = field(default_factory=_environment)
    policy: tuple[str, ...] = ()
    """Where the policy for signatures is, if not in the system's place: for each command that moves an image."""

    def build(self, context: Path, role: str, reference: str, on_line: OnLine, *options: str) -> None:
        """Build one role of `context`/Containerfile."""
        where = ["--file", str(context / "Containerfile"), "--target", role, "--tag", reference]
        self.run(["build", *where, *options, str(context)], f"building {role}", on_line)

    def push(self, reference: str, on_line: OnLine, *, tls_verify: bool = True) -> str:
        """Push an image and return the digest of its manifest, as the registry now has it."""
        digests: list[str] = []

        def listen(line: str) -> None:
            digests.extend(_PUSHED.findall(line))
            on_line(line)

        with tempfile.TemporaryDirectory(prefix="slurmstack-push-") as work:
            file = Path(work) / "digest"
            options: list[str] = []
            if self.name in {"podman", "buildah"}:
                options = [*self.policy, "--digestfile", str(file), f"--tls-verify={str(tls_verify).lower()}"]
            elif not tls_verify:
                raise Failure(
                    f"only podman and buildah can be told so, and {self.name} is configured for a registry without TLS",
                    hint="insecure-registries in docker's daemon.json",
                    code=USAGE,
                )
            self.run(["push", *options, reference], f"pushing {reference}", listen)
            if file.exists():
                digests += _PUSHED.findall(file.read_text(encoding="utf-8"))
        if not digests:
            raise Failure(f"{self.name} pushed {reference} but did not say its digest", hint="try another --tool")
        return digests[-1]

    def run(self, arguments: Sequence[str], doing: str, on_line: OnLine = lambda _: None) -> None:
        """Run the tool to its end, with its output in the log. Raises Failure with its last lines; Ctrl-C stops it."""
        command = [*self.launcher, self.name, *arguments]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as stream:

            def keep(line: str) -> None:
                stream.write(line + "\n")
                stream.flush()
                on_line(line)

            keep(f"$ {' '.join(command)}")
            try:
                status, lines = follow(command, keep, env=self.environment)
            except OSError as error:
                raise Failure(f"{command[0]} cannot be run: {error}") from error
        if status != 0:
            shown = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
            raise Failure(f"{doing} failed; its last lines:\n{shown}", hint=f"the whole log: {self.log}")


@contextmanager
def open_tool(wanted: str | None, log: Path, report: Report) -> Iterator[Tool]:
    """The tool that was asked for, else the first on PATH, with a new log. Raises Failure where there is none.

    `local` holds off the local cluster's builds meanwhile.
    """
    log.unlink(missing_ok=True)
    if wanted == LOCAL:
        with image_store(report) as store:
            yield Tool(
                name="buildah", log=log, launcher=tuple(store.inside([])), environment=store.environment(),
                policy=tuple(store.policy),
            )  # fmt: skip
        return
    if wanted is not None and wanted not in TOOLS:
        raise Failure(f"--tool {wanted!r} is none of {', '.join([*TOOLS, LOCAL])}", code=USAGE)
    name = wanted or next(filter(shutil.which, TOOLS), None)
    if name is None:
        raise Failure(
            f"none of {', '.join(TOOLS)} is on PATH", hint="install one; on Debian as root, `--tool local` needs none"
        )
    yield Tool(name=name, log=log)


def default_base(slurm_version: str) -> str:
    """The image of the Debian suite that carries this Slurm version."""
    return f"docker.io/library/debian:{DEBIAN_SUITES[slurm_version]}-slim"


def build_images(
    tool: Tool,
    names: ImageNames,
    report: Report,
    *,
    base: str | None = None,
    options: Sequence[str] = (),
    sources: Path = SOURCES,
) -> None:
    """Build one role after the other: the tool keeps what they share. `options`: more for each `build`."""
    for role in ROLES:
        arguments = [f"BASE={base or default_base(names.slurm_version)}"]
        arguments += names.extras.arguments if role == "jail" else ()
        given = [word for argument in arguments for word in ("--build-arg", argument)]
        with report.step(f"Build {role}") as step:
            tool.build(sources, role, names.reference(role), last_line(step), *given, *options)


def build_local(names: ImageNames, log: Path, report: Report) -> None:
    """Build as the local cluster does: with its own buildah, and a base made from this machine's Debian mirror."""
    built = ensure_images(report, names.slurm_version, names.extras, in_store=True)
    pairs = [(built.reference(role), names.reference(role)) for role in ROLES]
    renamed = [pair for pair in pairs if pair[0] != pair[1]]
    if renamed:
        with open_tool(LOCAL, log, report) as tool:
            for source, target in renamed:
                tool.run(["tag", source, target], f"naming {source} {target}")


def push_images(tool: Tool, names: ImageNames, report: Report, *, tls_verify: bool = True) -> dict[str, str]:
    """Push the images of all roles and return each one's digest."""
    digests = {}
    for role in ROLES:
        with report.step(f"Push {role}") as step:
            digests[role] = tool.push(names.reference(role), last_line(step), tls_verify=tls_verify)
            step.note(digests[role])
    return digests


def last_line(step: Step) -> OnLine:
    """Shows what a tool says, as the step's progress."""
    return lambda line: step.progress(0, 0, line[:60])
