"""A volume, the image that its roots are filled from, and one with two roots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.images.jail_roots.filled import fill


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    for name in ("etc/skel", "home", "srv", "usr/bin", "opt", "proc/1"):
        (root / name).mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/shadow").write_text("root:*:20000:0:99999:7:::\n")
    (root / "usr/bin/tool").write_text("tool")
    return root


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    return path


@pytest.fixture
def tools(source: Path, volume: Path) -> Path:
    """The first root, and `blue`."""
    (source / "usr/local/bin").mkdir(parents=True)
    (source / "usr/bin/other").write_text("other")
    fill(source, volume, "")
    fill(source, volume, "blue", version="24.11-def")
    return volume
