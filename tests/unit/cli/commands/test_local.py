"""What `slurmstack up` has the local cluster's nodes given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.commands import local
from config import load_config
from local import archives, cluster
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


@pytest.mark.parametrize(
    ("monitoring", "given"),
    [
        ({"install": True, "kube_state": True}, ["kube-state.tar"]),
        ({"install": True, "kube_state": True, "kube_state_image": "example.com/kube-state:v1"}, []),
        ({"install": True}, []),
    ],
)
def test_kube_state_metrics_is_built_for_a_stack_that_wants_it_and_names_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monitoring: dict[str, Any], given: list[str]
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(local, "kubeconfig", lambda: tmp_path)
    monkeypatch.setattr(archives, "ensure_kube_state", lambda _: Path("kube-state.tar"))
    monkeypatch.setattr(cluster, "load_archive", lambda archive: loaded.append(archive.name))
    config = load_config({**stacks.dev(), "images": {"tag": "mine"}, "monitoring": monitoring})

    local.ensure_local_images(PlainReport(), config)

    assert loaded == given
