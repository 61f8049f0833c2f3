"""Bring images onto the nodes of a small cluster without a registry: kind, k3s, and this machine's local cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.images.names import ImageNames
from cli.images.push import ensure_built
from cli.images.runner import Runner
from cli.images.tools import Tool
from cli.kubectl.client import connect
from cli.stack import Stack
from config.sections.cloud import ExistingCloud
from local import cluster
from local.report import Report

KINDS = ("kind", "k3s", "local")
_KIND_CONTEXT = "kind-"
"""kind names a cluster's context after it: `kind-dev` is the cluster `dev`."""

_DEFAULT_KIND_CLUSTER = "kind"


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where images are loaded."""

    kind: str
    cluster: str = ""
    """Name of the kind cluster."""

    def __str__(self) -> str:
        described = {"kind": f"the kind cluster {self.cluster}", "k3s": "k3s on this machine"}
        return described.get(self.kind, "the local cluster")


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
    found = Destination(kind=wanted) if wanted else _detect(stack, context)
    if found.kind == "kind":
        return Destination(kind="kind", cluster=name or context.removeprefix(_KIND_CONTEXT) or _DEFAULT_KIND_CLUSTER)
    if name is not None:
        raise Failure("--name is the name of a kind cluster", hint="leave it out, or add --into kind", code=USAGE)
    return found


def _detect(stack: Stack, context: str) -> Destination:
    cloud = stack.config.cloud
    if not isinstance(cloud, ExistingCloud):
        raise Failure(
            f"the nodes of cloud {cloud.kind!r} take images from a registry", hint="use `slurmstack images push`"
        )
    if cloud.is_local:
        return Destination(kind="local")
    if context.startswith(_KIND_CONTEXT):
        return Destination(kind="kind")
    version = str(connect(cloud).json("version").get("serverVersion", {}).get("gitVersion", ""))
    if "+k3s" in version and not context.startswith("k3d-"):
        return Destination(kind="k3s")
    raise Failure(
        f"the cluster of context {context!r} (Kubernetes {version}) is neither kind nor k3s on this machine",
        hint="use a registry (`slurmstack images push`), or say what it is with --into",
    )


def load_images(tool: Tool, names: ImageNames, destination: Destination, runner: Runner, report: Report) -> None:
    """Save the images with the tool, and import them."""
    program = _program(destination)
    ensure_built(tool, names)
    with tempfile.TemporaryDirectory(prefix="slurmstack-load-") as work:
        with report.step(f"Save the images with {tool.name}") as step:
            archives = tool.save(
                list(names.references.values()), Path(work), runner, lambda line: step.progress(0, 0, line[:60])
            )
        with report.step(f"Load them into {destination}") as step:
            for count, archive in enumerate(archives):
                step.progress(count, len(archives))
                if destination.kind == "local":
                    cluster.load_archive(archive)
                else:
                    # One archive per call: kind before 0.18 reads the first one only.
                    command = [program, *_import_arguments(destination), str(archive)]
                    runner.run(command, doing=f"loading the images into {destination}", env=os.environ)


def _import_arguments(destination: Destination) -> list[str]:
    if destination.kind == "kind":
        return ["load", "image-archive", "--name", destination.cluster]
    return ["ctr", "images", "import"]


def _program(destination: Destination) -> str:
    if destination.kind == "local":
        return ""
    found = shutil.which(destination.kind)
    if found is None:
        hints = {
            "kind": "install it where docker or podman runs the nodes, or push to a registry",
            "k3s": "run this on the k3s node itself, on each if there are several, or push to a registry",
        }
        raise Failure(f"{destination.kind} is not on PATH", hint=hints[destination.kind])
    return found
