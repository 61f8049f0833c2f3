"""Images as buildah exports them, made by hand."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

Entries = dict[str, str | None]


def layer(entries: Entries) -> bytes:
    """A tar with files (text) and directories (None)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in entries.items():
            info = tarfile.TarInfo(name)
            if text is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            else:
                info.size = len(text)
                info.mode = 0o4755 if name.endswith("setuid") else 0o644
                tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def export(directory: Path, *layers: Entries) -> Path:
    """An image as `buildah push dir:` writes it."""
    directory.mkdir(parents=True)
    blobs = [layer(entries) for entries in layers]
    config = json.dumps({"rootfs": {"diff_ids": [digest(blob) for blob in blobs]}}).encode()
    for blob in [*blobs, config]:
        (directory / digest(blob).removeprefix("sha256:")).write_bytes(blob)
    manifest = {
        "schemaVersion": 2,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(config),
            "size": len(config),
        },
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(blob), "size": len(blob)}
            for blob in blobs
        ],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
