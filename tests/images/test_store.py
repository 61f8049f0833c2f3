"""What the local cluster's own buildah makes of an image: one archive with others, and a file system to look at."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import archives, images, paths, versions
from local.build import Binaries
from local.buildah import Buildah
from local.report import PlainReport

BASE, FIRST, SECOND = (f"localhost/slurmstack-test/{name}:1" for name in ("base", "first", "second"))
FILES = 'mkdir "$ROOT/old" "$ROOT/bin"; echo x > "$ROOT/old/file"; echo y > "$ROOT/bin/su"; chmod 4755 "$ROOT/bin/su"'


def read(archive: Path, name: str) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return dict(json.load(file))


def blob(archive: Path, descriptor: dict[str, Any]) -> dict[str, Any]:
    return read(archive, f"blobs/{descriptor['digest'].replace(':', '/')}")


def build(store: Buildah, directory: Path, reference: str, *steps: str) -> None:
    (directory / "Containerfile").write_text("\n".join([f"FROM {BASE} AS here", *steps]))
    (directory / "new").write_text(reference)
    store.build(context=directory, target="here", base="", reference=reference, arguments=[], volumes=[], on_line=print)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Buildah]:
    """The real store with three small images: two stand on the third."""
    if os.geteuid() != 0:
        pytest.skip("the local cluster's image store needs root")
    with images.image_store(PlainReport()) as store:
        store.commit_directory(FILES, BASE, {}, print)
        build(store, tmp_path, FIRST, "COPY new /old/file")
        build(store, tmp_path, SECOND, "COPY new /new")
        yield store
        store.remove([FIRST, SECOND, BASE])


def test_an_archive_has_the_names_that_containerd_takes_and_shared_layers_once(store: Buildah, tmp_path: Path) -> None:
    store.save([FIRST, SECOND], tmp_path / "images.tar", lambda _: None)

    index = read(tmp_path / "images.tar", "index.json")
    found = [descriptor["annotations"]["io.containerd.image.name"] for descriptor in index["manifests"]]
    with tarfile.open(tmp_path / "images.tar") as tar:
        blobs = [name for name in tar.getnames() if name.startswith("blobs/sha256/")]
    assert found == [FIRST, SECOND]
    assert len(blobs) == 3 + 2 + 2  # layers, configurations, manifests
    assert [path.name for path in tmp_path.glob(".layout-*")] == []


def test_the_file_system_of_an_image_is_read_whole_and_can_be_copied(store: Buildah, tmp_path: Path) -> None:
    target = tmp_path / "root"
    target.mkdir()
    store.read_image(FIRST, 'cp --archive "$ROOT/." "$TARGET"', {"TARGET": str(target)})

    assert (target / "old/file").read_text() == FIRST
    assert (target / "bin/su").stat().st_mode & 0o7777 == 0o4755
    assert not (target / "new").exists()


def test_a_program_becomes_an_image_that_runs_it_as_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("the local cluster's image store needs root")
    monkeypatch.setattr(paths, "cache_images", lambda: tmp_path / "images")
    for program in ("pause", "coredns"):
        (tmp_path / f"{program}-key").mkdir()
        (tmp_path / f"{program}-key" / program).write_bytes(b"\x7fELF")
    binaries = Binaries((tmp_path / "pause-key", tmp_path / "coredns-key"))

    archives.ensure_system_archives(PlainReport(), binaries)
    archive = archives.places(binaries)["pause"]

    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["coredns-key.tar", "pause-key.tar"]
    (image,) = read(archive, "index.json")["manifests"]
    assert image["annotations"]["io.containerd.image.name"] == versions.PAUSE_IMAGE
    config = blob(archive, blob(archive, image)["config"])["config"]
    assert (config["User"], config["Entrypoint"]) == ("65534:65534", ["/pause"])
