"""Build the images of all roles from `images/Containerfile`, and push them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cli.images.names import ImageNames
from cli.images.tools import LOCAL, Tool, open_tool
from local.images import ensure_images
from local.report import Report, Step
from slurm.images import DEBIAN_SUITES, ROLES, SOURCES


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
    built = ensure_images(report, names.slurm_version, names.extras)
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


def last_line(step: Step) -> Callable[[str], None]:
    """Shows what a tool says, as the step's progress."""
    return lambda line: step.progress(0, 0, line[:60])
