"""Build the images of all roles from `images/Containerfile`, push them, or load them into a small cluster.

Small clusters need no registry for it: kind, k3s, and this machine's local cluster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.images.names import ImageNames
from cli.images.tools import LOCAL, Tool, open_tool, run_logged
from cli.kubectl.client import connect
from cli.stack import Stack
from config.sections.cloud import ExistingCloud
from local import cluster
from local.images import ensure_images
from local.report import Report, Step
from slurm.images import DEBIAN_SUITES, ROLES, SOURCES, content_hash

KINDS = ("kind", "k3s", "local")
_KIND_CONTEXT = "kind-"
"""kind names a cluster's context after it: `kind-dev` is the cluster `dev`."""


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
    before = content_hash(sources)
    for role in ROLES:
        arguments = [f"BASE={base or default_base(names.slurm_version)}"]
        arguments += names.extras.arguments if role == "jail" else ()
        given = [word for argument in arguments for word in ("--build-arg", argument)]
        with report.step(f"Build {role}") as step:
            tool.build(sources, role, names.reference(role), last_line(step), *given, *options)
    content_hash.cache_clear()
    if content_hash(sources) != before:
        raise Failure(
            "files in images/ changed meanwhile, so that the tag is not of what was built", hint="build again"
        )


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


def choose_destination(stack: Stack, wanted: str | None, name: str | None) -> tuple[str, tuple[str, ...]]:
    """What was asked for, else what the stack's context is. Raises Failure where images cannot be loaded.

    With it what imports an archive, but for its name; empty: the local cluster does.
    """
    if wanted is not None and wanted not in KINDS:
        raise Failure(f"--into {wanted!r} is none of {', '.join(KINDS)}", code=USAGE)
    if stack.config.images.digests:
        raise Failure(
            "this stack pins its images: nodes take them from the registry by digest, whatever is loaded",
            hint="remove `digests` from slurmstack:images in the stack file to use loaded images",
            code=USAGE,
        )
    cloud = stack.config.cloud
    context = (cloud.context or "") if isinstance(cloud, ExistingCloud) else ""
    kind = wanted or _detect(stack, context)
    if name is not None and kind != "kind":
        raise Failure("--name is the name of a kind cluster", hint="leave it out, or add --into kind", code=USAGE)
    into = name or context.removeprefix(_KIND_CONTEXT) or "kind"
    commands = {"kind": ("kind", "load", "image-archive", "--name", into), "k3s": ("k3s", "ctr", "images", "import")}
    return kind, commands.get(kind, ())


def _detect(stack: Stack, context: str) -> str:
    cloud = stack.config.cloud
    if not isinstance(cloud, ExistingCloud):
        raise Failure(
            f"the nodes of cloud {cloud.kind!r} take images from a registry", hint="use `slurmstack images push`"
        )
    if cloud.is_local:
        return "local"
    if context.startswith(_KIND_CONTEXT):
        return "kind"
    version = str(connect(cloud).json("version").get("serverVersion", {}).get("gitVersion", ""))
    if "+k3s" in version and not context.startswith("k3d-"):
        return "k3s"
    raise Failure(
        f"the cluster of context {context!r} (Kubernetes {version}) is neither kind nor k3s on this machine",
        hint="use a registry (`slurmstack images push`), or say what it is with --into",
    )


def load_images(tool: Tool, names: ImageNames, command: Sequence[str], report: Report) -> None:
    """Save each image with the tool, and import it, as `choose_destination` says."""
    for role in ROLES:
        with tempfile.TemporaryDirectory(prefix="slurmstack-load-") as work, report.step(f"Load {role}") as step:
            archive = Path(work) / f"{role}.tar"
            tool.save(names.reference(role), archive, last_line(step))
            if command:
                run_logged([*command, str(archive)], tool.log, f"loading {role}", last_line(step))
            else:
                cluster.load_archive(archive)
