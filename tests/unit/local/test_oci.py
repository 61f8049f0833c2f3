"""Images without a registry: layers are shared, names are containerd's, and whiteouts delete."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from local import oci
from local.errors import LocalError
from tests.unit.local.exported import Entries, export

BASE: Entries = {"etc": None, "etc/passwd": "root", "bin": None, "bin/setuid": "x", "old": None, "old/file": "y"}


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    path = tmp_path / "layout"
    oci.add_image(path, export(tmp_path / "a", BASE, {"a": "a"}), "localhost/x/a:1")
    oci.add_image(path, export(tmp_path / "b", BASE, {"b": "b"}), "localhost/x/b:1")
    return path


def test_a_shared_layer_is_kept_once(layout: Path) -> None:
    blobs = list((layout / "blobs/sha256").iterdir())

    assert len(blobs) == 3 + 2 + 2  # layers, configurations, manifests


def test_every_blob_is_named_by_its_content(layout: Path) -> None:
    for blob in (layout / "blobs/sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


def test_a_layer_that_is_there_is_not_compressed_again(
    layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = []
    real = oci._compress

    def compress(path: Path, target: Path) -> object:
        compressed.append(path)
        return real(path, target)

    monkeypatch.setattr(oci, "_compress", compress)

    oci.add_image(layout, export(tmp_path / "c", BASE, {"c": "c"}), "localhost/x/c:1")

    assert len(compressed) == 1


def test_an_archive_names_its_images_as_containerd_takes_them(layout: Path, tmp_path: Path) -> None:
    archive = tmp_path / "images.tar"

    oci.write_archive(layout, ["localhost/x/a:1", "localhost/x/b:1"], archive)

    assert oci.image_names(archive) == ["localhost/x/a:1", "localhost/x/b:1"]
    with tarfile.open(archive) as tar:
        assert len([name for name in tar.getnames() if name.startswith("blobs/")]) == 7
        file = tar.extractfile("index.json")
        assert file is not None
        annotations = json.load(file)["manifests"][0]["annotations"]
    assert annotations["io.containerd.image.name"] == "localhost/x/a:1"


def test_an_image_that_is_missing_is_named(layout: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="localhost/x/z:1"):
        oci.write_archive(layout, ["localhost/x/z:1"], tmp_path / "images.tar")


def test_an_image_of_the_same_name_replaces_the_old_one(layout: Path, tmp_path: Path) -> None:
    oci.add_image(layout, export(tmp_path / "a2", BASE, {"a": "new"}), "localhost/x/a:1")

    index = json.loads((layout / "index.json").read_text())

    assert len(index["manifests"]) == 2


def test_pruning_keeps_what_other_images_share(layout: Path, tmp_path: Path) -> None:
    oci.prune_layout(layout, ["localhost/x/b:1"])

    oci.write_archive(layout, ["localhost/x/b:1"], tmp_path / "images.tar")
    assert len(list((layout / "blobs/sha256").iterdir())) == 4
    with pytest.raises(LocalError):
        oci.write_archive(layout, ["localhost/x/a:1"], tmp_path / "other.tar")


def unpack(tmp_path: Path, *layers: Entries) -> Path:
    layout, archive, target = tmp_path / "l", tmp_path / "i.tar", tmp_path / "root"
    oci.add_image(layout, export(tmp_path / "e", *layers), "n:1")
    oci.write_archive(layout, ["n:1"], archive)
    target.mkdir()
    oci.unpack(archive, "n:1", target)
    return target


def test_layers_are_unpacked_in_order(tmp_path: Path) -> None:
    root = unpack(tmp_path, BASE, {"etc/passwd": "changed"})

    assert (root / "etc/passwd").read_text() == "changed"
    assert (root / "bin/setuid").stat().st_mode & 0o7777 == 0o4755


def test_a_whiteout_deletes_what_a_lower_layer_made(tmp_path: Path) -> None:
    root = unpack(tmp_path, BASE, {"etc/.wh.passwd": "", ".wh.old": ""})

    assert not (root / "etc/passwd").exists()
    assert not (root / "old").exists()
    assert not list(root.rglob(".wh.*"))


def test_an_opaque_directory_hides_everything_below(tmp_path: Path) -> None:
    root = unpack(tmp_path, BASE, {"old": None, "old/.wh..wh..opq": "", "old/new": "z"})

    assert [path.name for path in (root / "old").iterdir()] == ["new"]


def test_something_that_is_no_archive_has_no_images(tmp_path: Path) -> None:
    (tmp_path / "broken.tar").write_bytes(b"not a tar")

    assert oci.image_names(tmp_path / "broken.tar") == []
