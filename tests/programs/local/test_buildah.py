"""What buildah is told, by its release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from local.buildah import Buildah
from local.errors import LocalError
from local.tools import Tools


def prepared(directory: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Buildah:
    buildah = Buildah(tools=Tools(tree=None), directory=directory)
    printed = subprocess.CompletedProcess([], 0, f"buildah version {version} (image-spec 1.1.0)", "")
    monkeypatch.setattr(Buildah, "_run", lambda *_arguments, **_options: printed)
    buildah.prepare()
    return buildah


def test_a_full_disk_is_called_so_while_images_are_packed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buildah = prepared(tmp_path, "1.28.2", monkeypatch)
    monkeypatch.setattr("local.buildah._name_for_containerd", lambda _: None)
    full = ["sh", "-c", "echo 'tar: images.tar: Cannot write: No space left on device'; exit 2"]
    monkeypatch.setattr(Buildah, "inside", lambda *_: full)

    with pytest.raises(LocalError, match="the disk is full"):
        buildah.save(["localhost/x/a:1"], tmp_path / "images.tar", lambda _: None)

    assert not list(tmp_path.glob(".layout-*"))
