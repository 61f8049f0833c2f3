"""Commands that need nothing but a stack file: validate, render."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from cli.commands.options import ConfigOption, DetailedOption, JsonOption, MarkdownOption, form_of, named, option
from cli.errors import USAGE, Failure, Refused
from cli.preview.document import beside_objects, counted, exit_status, markdown
from cli.preview.files import of_files
from cli.program.recording import KeptValues, Manifest, manifests, record
from cli.stack import open_stack
from cli.text import print_lines, say
from local.files import PRIVATE, write_whole
from slurm.conf import render as render_slurm


def validate(
    config: ConfigOption = None,
    against: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="An earlier version of the stack file: say what the change to the present one makes anew or deletes.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
    detailed: DetailedOption = False,
) -> None:
    """Check a stack file, without a cluster. Lists everything that is wrong; exit status 2 if anything is.

    Values of Slurm's own settings are checked by Slurm itself when applied.

    With --against, what the change would replace or delete is listed with the data that this would lose, with --json
    and --markdown every object and property; exit status 3 if any of it is refused. Needs no network and no
    credentials: made for pipelines that look at pull requests.
    """
    form = form_of(as_json=as_json, as_markdown=as_markdown)
    if against is None and (form == "markdown" or detailed):
        raise Failure("--markdown and --detailed-exitcode need something to compare with: --against FILE", code=USAGE)
    stack = open_stack(config)
    render_slurm(stack.config)
    nodes = sum(pool.most for pool in stack.config.worker_nodes.values())
    summary: dict[str, Any] = {
        "file": str(stack.file), "stack": stack.name, "pools": len(stack.config.worker_nodes), "nodes": nodes,
    }  # fmt: skip
    document = of_files(stack, against) if against is not None else None
    if form == "markdown" and document is not None:
        typer.echo(markdown(document))
    elif form == "json":
        typer.echo(json.dumps(summary if document is None else {**document.as_data(), **summary}))
    else:
        pools = "pool" if summary["pools"] == 1 else "pools"
        fine = f"{stack.file}: fine ({summary['pools']} {pools}, {nodes} nodes, Slurm {stack.config.slurm.version})"
        say(escape(fine))
        if document is not None:
            print_lines([*beside_objects(document), f"against {against}: {counted(document.changes)}"])
            if document.refused:
                raise Refused("\n".join(document.refused))
    if document is not None:
        raise typer.Exit(exit_status(document, detailed=detailed))


def render(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", parser=named, help="Directory for the files.")
    ],
    config: ConfigOption = None,
    secrets: Annotated[
        Path | None,
        option(
            metavar="DIR",
            parser=named,
            help="Another directory for the Secrets, so that the first one can be committed. Default: with the rest.",
        ),
    ] = None,
) -> None:
    """Write the Kubernetes objects of a stack, one YAML file each, for `kubectl apply -f DIR`, Argo CD or Flux.

    The files are numbered in the order in which they can be applied. Run again, files of objects that left the stack
    are removed; other files in the directory are left alone. docs/pipelines.md says more under GitOps.

    Needs no cluster. Keys (munge, SSH host key) are made once and kept in .slurmstack/STACK/keys.json beside the stack
    file, so that the same stack always gives the same objects. Files with Secrets are readable by you only: do not
    commit them.
    """
    if secrets is not None and secrets.resolve() == output.resolve():
        raise Failure("--secrets and --output name the same directory", hint="leave --secrets out", code=USAGE)
    stack = open_stack(config)
    path = stack.private / "keys.json"
    kept = read_file(path)
    objects = manifests(record(stack.sections, stack=stack.name, generated=kept))
    write_file(path, kept)
    apart = [item for item in objects if item.kind == "Secret"]
    if secrets is not None:
        written = write([item for item in objects if item.kind != "Secret"], output)
        typer.echo(f"{len(written)} objects in {output}")
        typer.echo(f"{len(write(apart, secrets))} Secrets, in the clear, in {secrets}: do not commit them as they are")
    else:
        written = write(objects, output)
        typer.echo(f"{len(written)} objects in {output}")
        typer.echo(f"{len(apart)} of them are Secrets, in the clear: do not commit them (--secrets puts them apart)")
    if kept.changed:
        typer.echo(f"new keys in {path}: keep this file, without it the next run makes other keys")


def read_file(path: Path) -> KeptValues:
    """The values that `write_file` kept, none if there is no file yet. Raises Failure if they cannot be read."""
    try:
        return KeptValues({**json.loads(path.read_text(encoding="utf-8"))})
    except FileNotFoundError:
        return KeptValues({})
    except (OSError, ValueError, TypeError) as error:
        raise Failure(
            f"{path}, which keeps the generated keys, cannot be read: {error}",
            hint="restore it from a backup; without it new keys would be made, and running pods keep the old ones",
        ) from error


def write_file(path: Path, kept: KeptValues) -> None:
    """Keep the values in a file that only its owner can read; it appears whole or not at all. Raises Failure."""
    if not kept.changed:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(kept.values, indent=1))
    except OSError as error:
        raise Failure(f"cannot keep the generated keys in {path}: {error.strerror or error}") from error


# The files of `render`

INDEX = ".slurmstack-rendered"
"""Lists the files that we wrote into a directory, so that the next run removes those that are no longer part of it."""

_ORDER: tuple[frozenset[str], ...] = (
    frozenset({"Namespace"}),
    frozenset({"PersistentVolume", "PersistentVolumeClaim"}),
    frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}),
    frozenset({"NetworkPolicy", "PodDisruptionBudget"}),
    frozenset({"Secret", "ConfigMap"}),
    frozenset({"Service"}),
    frozenset(),
    frozenset({"Job"}),
    frozenset({"StatefulSet", "Deployment"}),
)
"""What comes before what, by kind; the empty place is for all others. A pod whose ConfigMap or Secret is not there yet
is tried again by the kubelet in growing steps, up to two minutes apart."""

_KEPT = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""On what holds data: Argo CD and Flux do not delete it, neither when it leaves the directory nor with the whole."""


_FIRST = ("apiVersion", "kind", "metadata")


def write(objects: Sequence[Manifest], directory: Path) -> list[Path]:
    """Write one YAML file per object; remove files of an earlier run that left the set.

    Returns the objects' files, in the order in which they can be applied. Files with Secrets can be read by their owner
    only. Other files in the directory are left alone, and never overwritten.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        index = directory / INDEX
        ours = set(index.read_text(encoding="utf-8").split("\n")) if index.exists() else set()
        manifests = {file_name(manifest): manifest for manifest in objects}
        names = {*manifests}
        if foreign := sorted(name for name in names - ours if (directory / name).exists()):
            raise Failure(
                f"{directory} already has files that this command did not write: {', '.join(foreign)}",
                hint="name another directory with --output or --secrets",
            )
        # The list grows before files appear and shrinks after they went: an interrupted run can be repeated.
        index.write_text("\n".join(sorted(ours | names)), encoding="utf-8")
        for name, manifest in manifests.items():
            mode = PRIVATE if manifest.kind == "Secret" else 0o644
            holds_data = manifest.kind in {"Namespace", "PersistentVolume", "PersistentVolumeClaim"}
            text = to_yaml(manifest, _KEPT if holds_data else {})
            write_whole(directory / name, text, mode=mode, durable=False)
        for name in ours - names - {""}:
            (directory / name).unlink(missing_ok=True)
        index.write_text("\n".join(sorted(names)), encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror or error}") from error
    return [directory / name for name in sorted(manifests)]


def file_name(manifest: Manifest) -> str:
    """`80-statefulset-default.yaml` for the StatefulSet `default`.

    kubectl applies the files of a directory in the order of their names. The number depends on the kind alone, so that
    no object's file is renamed because of another's.
    """
    others = _ORDER.index(frozenset())
    place = next((number for number, kinds in enumerate(_ORDER) if manifest.kind in kinds), others)
    return f"{place}0-{manifest.kind.lower()}-{manifest.name}.yaml"


def to_yaml(manifest: Manifest, annotations: Mapping[str, str] | None = None) -> str:
    """The object as YAML, keys in the order in which people write them; with some more annotations."""
    metadata = manifest.document["metadata"]
    if annotations:
        metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
    document = {**manifest.document, "metadata": metadata}
    ordered = {key: document[key] for key in sorted(document, key=lambda key: (key not in _FIRST, key))}
    # libyaml's own emitter, which the published packages of PyYAML have, is five times as fast as the one in Python.
    return str(yaml.dump(ordered, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120))
