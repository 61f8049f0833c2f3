"""What `slurmstack up` has the local cluster's nodes given."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import local
from config import load_config
from local.report import PlainReport
from slurm.images import JailExtras
from tests import stacks


def test_the_images_have_what_the_stack_wants_in_the_jail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, JailExtras]] = []
    monkeypatch.setattr(local, "kubeconfig", lambda: tmp_path)
    monkeypatch.setattr(local, "load_images", lambda _, version, extras: loaded.append((version, extras)))
    config = load_config({**stacks.dev(), "images": {"jail": {"packages": ["vim", "bc"], "cuda": True}}})

    local.ensure_local_images(PlainReport(), config)

    assert loaded == [(config.slurm.version, JailExtras(packages=("bc", "vim"), cuda=True))]
