"""OCI layouts and archives: pack images that share layers into one file, and unpack one again."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""containerd takes the first as an image's full name; everybody else reads the second."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_GZIP_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_LAYERS = "layers.json"
_COMPRESSION = 1
"""zlib's fastest: the archive is read once, on this machine."""

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


def _blob_path(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def _digests_of(manifest: dict[str, Any]) -> list[str]:
    return [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def _name_of(descriptor: dict[str, Any]) -> str:
    annotations = descriptor.get("annotations") or {}
    return next((annotations[key] for key in _NAME_KEYS if key in annotations), "")


def add_image(layout: Path, exported: Path, name: str) -> None:
    """Add an image that buildah exported (local/buildah.py) to a layout, which is made where there is none.

    Layers are compressed here, fast and once: the layout remembers which compressed layer belongs to which content.
    buildah would compress every layer of every image at every push.
    """
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    known = _known_layers(layout)
    manifest = json.loads((exported / "manifest.json").read_text(encoding="utf-8"))
    contents = [layer["digest"] for layer in manifest["layers"]]
    missing = [digest for digest in contents if digest not in known]
    with ThreadPoolExecutor(max_workers=2) as pool:
        compressed = pool.map(lambda digest: _compress(exported / digest.partition(":")[2], layout), missing)
        known |= dict(zip(missing, compressed, strict=True))
    _write_json(layout / _LAYERS, known)
    config = (exported / manifest["config"]["digest"].partition(":")[2]).read_bytes()
    _write_blob(layout, config)
    manifest = {**manifest, "layers": [known[digest] for digest in contents]}
    data = json.dumps(manifest).encode()
    descriptor = {"mediaType": _MANIFEST, "digest": _write_blob(layout, data), "size": len(data)}
    index = _read_index(layout)
    others = [found for found in index["manifests"] if _name_of(found) != name]
    index["manifests"] = [*others, {**descriptor, "annotations": dict.fromkeys(_NAME_KEYS, name)}]
    _write_json(layout / "index.json", index)


def _read_index(layout: Path) -> dict[str, Any]:
    path = layout / "index.json"
    empty: dict[str, Any] = {"schemaVersion": 2, "manifests": []}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def _known_layers(layout: Path) -> dict[str, dict[str, Any]]:
    """Digest of a layer's content -> descriptor of the compressed layer in this layout."""
    path = layout / _LAYERS
    known: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {content: found for content, found in known.items() if (layout / _blob_path(found["digest"])).exists()}


def _compress(layer: Path, layout: Path) -> dict[str, Any]:
    """Compress a layer into the layout; the same content gives the same bytes."""
    digest, size = hashlib.sha256(), 0
    compressor = zlib.compressobj(level=_COMPRESSION, wbits=31)
    temporary = layout / "blobs" / f".{layer.name}"
    with layer.open("rb") as source, temporary.open("wb") as target:
        while chunk := source.read(1 << 20):
            size += _append(target, digest, compressor.compress(chunk))
        size += _append(target, digest, compressor.flush())
    name = f"sha256:{digest.hexdigest()}"
    temporary.rename(layout / _blob_path(name))
    return {"mediaType": _GZIP_LAYER, "digest": name, "size": size}


def _append(target: IO[bytes], digest: hashlib._Hash, data: bytes) -> int:
    target.write(data)
    digest.update(data)
    return len(data)


def _write_blob(layout: Path, data: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    (layout / _blob_path(digest)).write_bytes(data)
    return digest


def _write_json(path: Path, value: object) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.rename(path)


def write_archive(layout: Path, names: Sequence[str], archive: Path) -> None:
    """Pack the images of these names, with each layer once. Raises LocalError when one is missing."""
    index = _read_index(layout)
    by_name = {_name_of(descriptor): descriptor for descriptor in index["manifests"]}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise LocalError(f"the image layout {layout} lacks {', '.join(missing)}", "remove it and run again")
    descriptors = [{**by_name[name], "annotations": dict.fromkeys(_NAME_KEYS, name)} for name in names]
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode())
        for digest in _reachable(layout, descriptors):
            tar.add(layout / _blob_path(digest), arcname=_blob_path(digest), recursive=False)


def _reachable(layout: Path, descriptors: Iterable[dict[str, Any]]) -> list[str]:
    digests: dict[str, None] = {}
    for descriptor in descriptors:
        digests[descriptor["digest"]] = None
        manifest = json.loads((layout / _blob_path(descriptor["digest"])).read_text(encoding="utf-8"))
        digests |= dict.fromkeys(_digests_of(manifest))
    return list(digests)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(content))


def prune_layout(layout: Path, names: Iterable[str]) -> None:
    """Drop everything from a layout that does not belong to one of these images."""
    index_file = layout / "index.json"
    if not index_file.exists():
        return
    wanted = set(names)
    index = json.loads(index_file.read_text(encoding="utf-8"))
    index["manifests"] = [descriptor for descriptor in index["manifests"] if _name_of(descriptor) in wanted]
    _write_json(index_file, index)
    keep = set(_reachable(layout, index["manifests"]))
    for blob in (layout / "blobs/sha256").iterdir():
        if f"sha256:{blob.name}" not in keep:
            blob.unlink()


def image_names(archive: Path) -> list[str]:
    """Names of the images in an archive; none where it cannot be read."""
    try:
        with tarfile.open(archive) as tar:
            index = json.loads(_read(tar, "index.json"))
    except (OSError, tarfile.TarError, KeyError, ValueError):
        return []
    return [_name_of(descriptor) for descriptor in index["manifests"]]


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


def unpack(archive: Path, name: str, target: Path) -> None:
    """Unpack the layers of an image into an empty directory, with owners, modes and file capabilities."""
    with tarfile.open(archive) as tar:
        index = json.loads(_read(tar, "index.json"))
        descriptor = next((found for found in index["manifests"] if _name_of(found) == name), None)
        if descriptor is None:
            raise LocalError(f"{archive} has no image {name}", "remove the directory and run again")
        manifest = json.loads(_read(tar, _blob_path(descriptor["digest"])))
        for layer in manifest["layers"]:
            blob = tar.extractfile(_blob_path(layer["digest"]))
            assert blob is not None
            _apply_whiteouts(blob, target)
            blob.seek(0)
            _extract(blob, target)


def _apply_whiteouts(blob: IO[bytes], target: Path) -> None:
    with tarfile.open(fileobj=blob, mode="r:*") as layer:
        for member in layer:
            path = PurePosixPath(member.name)
            if path.name == _OPAQUE:
                for entry in (target / path.parent).iterdir():
                    _remove(entry)
            elif path.name.startswith(_WHITEOUT):
                _remove(target / path.parent / path.name.removeprefix(_WHITEOUT))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _extract(blob: IO[bytes], target: Path) -> None:
    """GNU tar: several times as fast as Python's, and keeps file capabilities."""
    command = [
        "tar",
        "--extract",
        "--gzip",
        "--directory",
        str(target),
        "--numeric-owner",
        "--same-owner",
        "--preserve-permissions",
    ]
    command += ["--xattrs", "--xattrs-include=security.capability", f"--exclude={_WHITEOUT}*"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # tar says why
            shutil.copyfileobj(blob, process.stdin, 1 << 20)
        process.stdin.close()
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise LocalError(f"cannot unpack an image into {target}: {message}", "is the disk full?")
