"""What buildah is told, by its release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from local.buildah import Buildah, parse_version
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
