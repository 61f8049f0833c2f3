"""`pip install .` copies all that the command needs, so that it works away from the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurm.images import content_hash
from tests.stacks import ROOT

TOPS = ("cli", "components", "config", "images", "local", "slurm", "slurm_templates")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put it. It builds in the directory that it is given, so that gets a copy."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "target"))
    for name in TOPS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__main__.py", "Pulumi.yaml", "README.md", "LICENSE", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, str(target), str(source)], check=True)
    return target


def slurmstack(installed: Path, directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "cli.entry", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout  # fmt: skip


def test_every_file_is_copied(installed: Path) -> None:
    for name in TOPS:
        ours, theirs = (
            {path.relative_to(top / name) for path in (top / name).rglob("*") if path.is_file()}
            for top in (ROOT, installed)
        )
        assert {path for path in ours if "__pycache__" not in path.parts} <= theirs


def test_the_command_works_on_a_stack_file_of_its_user_s_and_names_the_same_images(
    installed: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "Pulumi.dev.yaml", tmp_path)
    assert "Pulumi.dev.yaml: fine" in slurmstack(installed, tmp_path, "validate")
    slurmstack(installed, tmp_path, "render", "--output", "out")
    rendered = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.yaml"))
    assert f"controller:24.11-{content_hash()}" in rendered
    assert "ClusterName=" in rendered
