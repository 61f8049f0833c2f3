"""What buildah is told, by its release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from local.buildah import Buildah, parse_version
from local.errors import LocalError
from local.tools import Tools


def prepared(directory: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Buildah:
    buildah = Buildah(tools=Tools(tree=None), directory=directory)
    printed = subprocess.CompletedProcess([], 0, f"buildah version {version} (image-spec 1.1.0)", "")
    monkeypatch.setattr(Buildah, "_run", lambda *_arguments, **_options: printed)
    buildah.prepare()
    return buildah


@pytest.mark.parametrize(
    ("text", "version"),
    [("buildah version 1.28.2 (image-spec 1.0.2)", (1, 28)), ("buildah version 1.39.3", (1, 39)), ("", (0, 0))],
)
def test_it_reads_the_release(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_newer_releases_find_the_network_program_that_they_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buildah = prepared(tmp_path, "1.39.3", monkeypatch)
    assert (tmp_path / "helpers" / "netavark").exists()
    settings = Path(buildah.environment()["CONTAINERS_CONF"]).read_text(encoding="utf-8")
    assert f'helper_binaries_dir = ["{tmp_path}/helpers"]' in settings
    assert f'network_config_dir = "{tmp_path}/networks"' in settings


def test_older_releases_do_not_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(tmp_path, "1.39.3", monkeypatch)
    assert "CONTAINERS_CONF" not in prepared(tmp_path, "1.28.2", monkeypatch).environment()


def test_a_full_disk_is_called_so_while_images_are_packed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buildah = prepared(tmp_path, "1.28.2", monkeypatch)
    monkeypatch.setattr("local.buildah._name_for_containerd", lambda _: None)
    full = (2, ["tar: images.tar: Cannot write: No space left on device"])
    monkeypatch.setattr("local.buildah.follow", lambda *_, **__: full)

    with pytest.raises(LocalError, match="the disk is full"):
        buildah.save(["localhost/x/a:1"], tmp_path / "images.tar", lambda _: None)

    assert not list(tmp_path.glob(".layout-*"))
