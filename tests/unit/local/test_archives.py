from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING

from local import archives

if TYPE_CHECKING:
    from pathlib import Path


def _write(directory: Path, name: str) -> Path:
    program = directory / "pause"
    program.write_bytes(b"\x7fELF program")
    archives.write_image(directory / name, "localhost/slurmstack/pause:1", program, ["/pause"])
    return directory / name


def test_the_archive_names_its_image_and_the_layers_digest_is_true(tmp_path: Path) -> None:
    with tarfile.open(_write(tmp_path, "a.tar")) as archive:

        def read(name: str) -> bytes:
            stream = archive.extractfile(name)
            assert stream is not None
            return stream.read()

        manifest = json.loads(read("manifest.json"))[0]
        config = json.loads(read(manifest["Config"]))
        layer = read(manifest["Layers"][0])
    assert manifest["RepoTags"] == ["localhost/slurmstack/pause:1"]
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/pause"]


def test_the_same_program_gives_the_same_archive(tmp_path: Path) -> None:
    assert _write(tmp_path, "a.tar").read_bytes() == _write(tmp_path, "b.tar").read_bytes()
