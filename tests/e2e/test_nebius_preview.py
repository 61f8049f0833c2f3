"""The example for Nebius under the real Pulumi engine. Nothing is made in any cloud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.program.recording import record
from tests import stacks
from tests.stacks import with_change

PLUGIN = "pulumi-resource-terraform-provider"
"""The base plugin of the Nebius provider; the real one fetches the vendor's own provider."""

LANGUAGE = "pulumi-language-python"

pytestmark = [
    pytest.mark.skipif(
        shutil.which(program) is None, reason=f"{program} is not on PATH: this needs the real Pulumi engine"
    )
    for program in ("pulumi", LANGUAGE)
]


@dataclass(frozen=True)
class Project:
    """A stack of its own, with a state of its own."""

    directory: Path
    environment: dict[str, str]

    def write(self, sections: dict[str, Any]) -> None:
        """The stack file."""
        config = {f"slurmstack:{name}": value for name, value in sections.items()}
        salt = yaml.safe_load((self.directory / "Pulumi.test.yaml").read_text()).get("encryptionsalt")
        document = {"encryptionsalt": salt, "config": config}
        (self.directory / "Pulumi.test.yaml").write_text(yaml.safe_dump(document))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of Pulumi's, with what it printed."""
        arguments = ["pulumi", *command, "--non-interactive", "--stack", "test"]
        return subprocess.run(
            arguments,
            cwd=self.directory,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )


def _project(directory: Path, path: str) -> Project:
    for entry in stacks.ROOT.iterdir():
        if entry.name != ".git" and not entry.name.startswith("Pulumi."):
            (directory / entry.name).symlink_to(entry)
    shutil.copy(stacks.ROOT / "Pulumi.yaml", directory)
    (directory / "state").mkdir()
    environment = {
        **os.environ,
        "PATH": path,
        "PULUMI_BACKEND_URL": f"file://{directory / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "NEBIUS_IAM_TOKEN": "no token",
    }
    project = Project(directory, environment)
    made = project.run("stack", "init")
    assert made.returncode == 0, made.stderr
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The engine with a stand-in for the cloud's provider."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    script = f'#!/bin/sh\ncd {stacks.ROOT} && exec {sys.executable} -m tests.e2e.nebius_provider "$@"\n'
    (plugins / PLUGIN).write_text(script)
    (plugins / PLUGIN).chmod(0o755)
    directory = tmp_path / "project"
    directory.mkdir()
    return _project(directory, f"{plugins}:{os.environ['PATH']}")


def _steps(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return {step["urn"]: step["op"] for step in json.loads(done.stdout)["steps"]}


@pytest.mark.parametrize("stack", ["nebius", "nebius_minimum", "nebius_full"])
def test_the_engine_previews_a_cloud_of_which_nothing_is_known_yet(project: Project, stack: str) -> None:
    sections = getattr(stacks, stack)()
    project.write(sections)
    steps = _steps(project.run("preview", "--json"))
    assert set(steps.values()) == {"create"}
    recorded = {item.urn for item in record(sections, stack="test")}
    assert {urn for urn in steps if "pulumi:pulumi:Stack::" not in urn} == recorded


def test_the_engine_refuses_to_make_a_cluster_with_data_anew(project: Project) -> None:
    # Without GPUs, since what these need is made in a cluster, and there is none.
    sections = stacks.nebius_minimum()
    sections["worker_nodes"] = {"cpu": {"size": 1, "platform": "cpu-d3", "preset": "16vcpu-64gb"}}
    project.write(sections)
    cloud = ["--target", "**NebiusCloud**", "--target", "**providers:nebius**"]
    up = project.run("up", "--yes", "--skip-preview", *cloud)
    assert up.returncode == 0, up.stdout + up.stderr
    project.write(with_change(sections, "cloud.subnet_id", "vpcsubnet-e00other"))
    refused = project.run("preview", *cloud)
    assert refused.returncode != 0
    assert "Mk8sV1Cluster::slurm" in refused.stdout
    assert "protect" in refused.stdout


def test_the_engine_previews_the_example_with_the_real_provider(tmp_path: Path) -> None:
    if shutil.which(PLUGIN) is None and PLUGIN.removeprefix("pulumi-resource-") not in _installed():
        pytest.skip(f"{PLUGIN} is neither on PATH nor installed, so the real Nebius provider cannot be asked")
    project = _project(tmp_path, os.environ["PATH"])
    project.write(stacks.nebius())
    assert set(_steps(project.run("preview", "--json")).values()) == {"create"}


def _installed() -> set[str]:
    listed = subprocess.run(["pulumi", "plugin", "ls", "--json"], check=False, capture_output=True, text=True)
    return {item["name"] for item in json.loads(listed.stdout or "[]")} if listed.returncode == 0 else set()
