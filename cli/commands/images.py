"""Commands that build the images and push them to a registry."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.commands.options import ConfigOption, JsonOption, option
from cli.errors import USAGE, Failure
from cli.images.names import ImageNames, choose_names, snippet
from cli.images.names import pin as pin_digests
from cli.images.tools import LOCAL, build_images, build_local, default_base, open_tool, push_images
from cli.stack import Stack, open_stack
from local.report import PlainReport, Report, RichReport, open_report
from slurm.images import DEFAULT_REGISTRY

app = typer.Typer(
    help="The container images: build them, push them to a registry.",
    no_args_is_help=True,
)

RegistryOption = Annotated[
    str | None,
    option(
        "--registry",
        "-r",
        metavar="PREFIX",
        help="Host and path such as registry.example.com/slurm. Default: the stack file's.",
    ),
]
ToolOption = Annotated[
    str | None,
    option(help="docker, podman, buildah (default: the first on PATH), or local (the local cluster's own)."),
]
TagOption = Annotated[
    str | None, option(help="Default: the stack file's, else the Slurm version and a hash of images/.")
]
SlurmOption = Annotated[str | None, option(help="24.11 or 26.05. Default: the stack file's.")]


@app.command()
def build(
    config: ConfigOption = None,
    *,
    registry: RegistryOption = None,
    tool: ToolOption = None,
    tag: TagOption = None,
    slurm_version: SlurmOption = None,
    base: Annotated[
        str | None, option(metavar="IMAGE", help="Debian image to start from. Default: that of Slurm's suite.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Install all packages anew, for security updates.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build the images of a cluster with the tool that is there, from images/Containerfile.

    The tag follows the content of images/: the same sources give the same names. Needs a few minutes the first time.
    """
    stack = open_stack(config)
    names = choose_names(stack, registry=registry, tag=tag, slurm_version=slurm_version)
    report = _report(as_json=as_json)
    if tool == LOCAL:
        if base or no_cache:
            message = "--tool local makes its base from Debian packages and keeps its own cache"
            raise Failure(message, hint="leave --base and --no-cache out, or choose another tool", code=USAGE)
        build_local(names, _log(stack, "build"), report)
        used = LOCAL
    else:
        options = ["--no-cache", "--pull"] if no_cache else []
        with open_tool(tool, _log(stack, "build"), report) as chosen:
            report.info(f"{chosen.name} builds from {base or default_base(names.slurm_version)}")
            build_images(chosen, names, report, base=base, options=options)
            used = chosen.name
    _print(names, used, {}, as_json=as_json)


@app.command()
def push(
    config: ConfigOption = None,
    *,
    registry: RegistryOption = None,
    tool: ToolOption = None,
    tag: TagOption = None,
    slurm_version: SlurmOption = None,
    pin: Annotated[bool, typer.Option("--pin", help="Write registry and digests into the stack file.")] = False,
    tls_verify: Annotated[
        bool, typer.Option(help="Whether the registry must have TLS with a trusted certificate.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Push the images that `build` made, and print their digests for the stack file.

    A stack with digests runs exactly these images, whatever its registry's tags say later. --pin writes them into the
    stack file, once all are pushed.
    """
    stack = open_stack(config)
    names = choose_names(stack, registry=registry, tag=tag, slurm_version=slurm_version)
    if names.registry == DEFAULT_REGISTRY:
        raise Failure(
            "no registry to push to",
            hint="name it with --registry, or in the stack file as slurmstack:images: {registry: ...}",
            code=USAGE,
        )
    if pin and names.slurm_version != stack.config.slurm.version:
        raise Failure(
            f"{stack.file} runs Slurm {stack.config.slurm.version}: it cannot pin images of {names.slurm_version}",
            hint="change slurmstack:slurm first, or leave --pin out",
            code=USAGE,
        )
    report = _report(as_json=as_json)
    with open_tool(tool, _log(stack, "push"), report) as chosen:
        digests = push_images(chosen, names, report, tls_verify=tls_verify)
    if pin:
        pin_digests(stack.file, names, digests)
    _print(
        names, tool or chosen.name, {"digests": digests, "pinned": str(stack.file) if pin else None}, as_json=as_json
    )
    if as_json:
        return
    if pin:
        typer.echo(f"pinned in {stack.file}; `slurmstack up` rolls the pods to them")
    else:
        typer.echo(f"For the stack file, below `config:` (or run again with --pin):\n\n{snippet(names, digests)}")


def _report(*, as_json: bool) -> Report:
    """Progress; beside JSON it goes to standard error."""
    if not as_json:
        return open_report()
    return RichReport(Console(stderr=True, highlight=False)) if sys.stderr.isatty() else PlainReport(sys.stderr)


def _log(stack: Stack, command: str) -> Path:
    return stack.private / f"images-{command}.log"


def _print(names: ImageNames, tool: str, more: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        data = {
            "tool": tool,
            "slurm_version": names.slurm_version,
            "registry": names.registry,
            "tag": names.tag,
            "references": names.references,
        }
        typer.echo(json.dumps({**data, **more}, indent=1))
    else:
        typer.echo("\n".join(names.references.values()))
