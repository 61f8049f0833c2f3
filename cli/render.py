"""Manifests as files, one object each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from cli.errors import Failure
from cli.manifests import Manifest

INDEX = ".slurmstack-rendered"
"""Lists the files that we wrote into a directory, so that the next run removes those that are no longer part of it."""


def write(objects: Sequence[Manifest], directory: Path) -> list[Path]:
    """Write one YAML file per object and remove files of an earlier run that left the set. Returns what was written.

    Files with Secrets can be read by their owner only. Other files in the directory are left alone, and never
    overwritten.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        index = directory / INDEX
        ours = set(index.read_text(encoding="utf-8").split("\n")) if index.exists() else set()
        names = {file_name(manifest): manifest for manifest in objects}
        _refuse_foreign(directory, set(names) - ours)
        # The list grows before files appear and shrinks after they went: an interrupted run can be repeated.
        index.write_text("\n".join(sorted(ours | set(names))), encoding="utf-8")
        written = [_write_file(directory / name, manifest) for name, manifest in names.items()]
        for name in ours - set(names) - {""}:
            (directory / name).unlink(missing_ok=True)
        index.write_text("\n".join(sorted(names)), encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror or error}") from error
    return written


def file_name(manifest: Manifest) -> str:
    """`statefulset-default.yaml` for the StatefulSet `default`."""
    return f"{manifest.kind.lower()}-{manifest.name}.yaml"


def to_yaml(manifest: Manifest) -> str:
    """The object as YAML, keys in the order in which people write them."""
    first = [key for key in ("apiVersion", "kind", "metadata") if key in manifest.document]
    rest = sorted(set(manifest.document) - set(first))
    ordered = {key: manifest.document[key] for key in [*first, *rest]}
    # libyaml's own emitter, which the published packages of PyYAML have, is five times as fast as the one in Python.
    return str(yaml.dump(ordered, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120))


def _refuse_foreign(directory: Path, names: set[str]) -> None:
    foreign = sorted(name for name in names if (directory / name).exists())
    if foreign:
        raise Failure(
            f"{directory} already has files that this command did not write: {', '.join(foreign)}",
            hint="name another directory with --output",
        )


def _write_file(path: Path, manifest: Manifest) -> Path:
    mode = 0o600 if manifest.kind == "Secret" else 0o644
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(to_yaml(manifest))
    temporary.replace(path)
    return path
