"""Container images of one static program, written as an archive with Python alone: no builder is needed for them."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local import build, paths, versions

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def ensure_system_archives(binaries: build.Binaries) -> list[Path]:
    """Write the archives of pause and CoreDNS, once per program built; returns their paths."""
    wanted = [
        ("pause", versions.PAUSE_IMAGE, ["/pause"]),
        ("coredns", versions.COREDNS_IMAGE, ["/coredns"]),
    ]
    found = []
    for program, reference, entrypoint in wanted:
        source = Path(binaries.path(program))
        # The directory of the program is named by its inputs: so is the image.
        target = paths.cache_images() / f"{source.parent.name}.tar"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".image-", dir=target.parent) as work:
                unfinished = Path(work) / "image.tar"
                write_image(unfinished, reference, source, entrypoint)
                unfinished.rename(target)
        found.append(target)
    return found


def write_image(target: Path, reference: str, program: Path, entrypoint: Sequence[str]) -> None:
    """Write a docker archive with one layer that has one executable at `/<its name>`.

    Nothing depends on the time: the same program gives the same archive.
    """
    layer = _layer(program)
    layer_digest = hashlib.sha256(layer).hexdigest()
    config = image_config(entrypoint, layer_digest)
    config_digest = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{config_digest}.json", "RepoTags": [reference], "Layers": [f"{layer_digest}/layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, f"{config_digest}.json", config)
        _add(archive, f"{layer_digest}/layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def image_config(entrypoint: Sequence[str], layer_digest: str) -> bytes:
    """Write the image's configuration; user 65534 (nobody), since neither program needs root."""
    machine = platform.machine()
    document: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "WorkingDir": "/", "User": "65534:65534"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created_by": "slurmstack"}],
    }
    return json.dumps(document, sort_keys=True).encode()


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        _add(archive, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = mode
    archive.addfile(member, io.BytesIO(content))
