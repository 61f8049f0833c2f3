"""Bring images onto the nodes of a small cluster without a registry: kind, k3s, and this machine's local cluster."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.images.build import last_line
from cli.images.names import ImageNames
from cli.images.tools import Tool, run_logged
from cli.kubectl.client import connect
from cli.stack import Stack
from config.sections.cloud import ExistingCloud
from local import cluster
from local.report import Report
from slurm.images import ROLES

KINDS = ("kind", "k3s", "local")
_KIND_CONTEXT = "kind-"
"""kind names a cluster's context after it: `kind-dev` is the cluster `dev`."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where images are loaded."""

    kind: str
    command: tuple[str, ...] = ()
    """What imports an archive, but for its name. Empty: the local cluster does."""


def choose_destination(stack: Stack, wanted: str | None, name: str | None) -> Destination:
    """What was asked for, else what the stack's context is. Raises Failure where images cannot be loaded."""
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
    return Destination(kind=kind, command=commands.get(kind, ()))


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


def load_images(tool: Tool, names: ImageNames, destination: Destination, report: Report) -> None:
    """Save each image with the tool, and import it."""
    for role in ROLES:
        with tempfile.TemporaryDirectory(prefix="slurmstack-load-") as work, report.step(f"Load {role}") as step:
            archive = Path(work) / f"{role}.tar"
            tool.save(names.reference(role), archive, last_line(step))
            if destination.command:
                run_logged([*destination.command, str(archive)], tool.log, f"loading {role}", last_line(step))
            else:
                cluster.load_archive(archive)
