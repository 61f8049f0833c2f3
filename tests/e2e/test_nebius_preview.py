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


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The engine with a stand-in for the cloud's provider."""
    plugins, directory = tmp_path / "plugins", tmp_path / "project"
    plugins.mkdir()
    script = f'#!/bin/sh\ncd {stacks.ROOT} && exec {sys.executable} -m tests.e2e.nebius_provider "$@"\n'
    (plugins / PLUGIN).write_text(script)
    (plugins / PLUGIN).chmod(0o755)
    (directory / "state").mkdir(parents=True)
    for entry in stacks.ROOT.iterdir():
        if entry.name != ".git" and not entry.name.startswith("Pulumi."):
            (directory / entry.name).symlink_to(entry)
    shutil.copy(stacks.ROOT / "Pulumi.yaml", directory)
    environment = {
        **os.environ,
        "PATH": f"{plugins}:{os.environ['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{directory / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "NEBIUS_IAM_TOKEN": "no token",
    }
    project = Project(directory, environment)
    made = project.run("stack", "init")
    assert made.returncode == 0, made.stderr
    return project


@pytest.mark.parametrize("stack", ["nebius", "nebius_full"])
def test_the_engine_previews_a_cloud_of_which_nothing_is_known_yet(project: Project, stack: str) -> None:
    sections = getattr(stacks, stack)()
    project.write(sections)
    done = project.run("preview", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = {step["urn"]: step["op"] for step in json.loads(done.stdout)["steps"]}
    assert set(steps.values()) == {"create"}
    recorded = {item.urn for item in record(sections, stack="test")}
    assert {urn for urn in steps if "pulumi:pulumi:Stack::" not in urn} == recorded
