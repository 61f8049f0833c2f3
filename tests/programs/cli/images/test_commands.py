"""`slurmstack images`, with docker, podman and buildah that only note what they are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.commands.images import app
from cli.errors import Failure
from cli.images.tools import TOOLS
from config.load import load_stack_file
from slurm.images import ROLES, image_tag
from tests import stacks
from tests.fakes.tool_programs import digest_of
from tests.fakes.tools import FakeTools
from tests.unit.cli.command_line import stack_file

REGISTRY = "registry.example/slurmstack"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTools:
    """An empty PATH to put programs on."""
    fakes = FakeTools(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(fakes.directory))
    return fakes


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack on somebody's cluster that names a registry."""
    return stack_file(tmp_path, stacks.existing())


def images(*arguments: str, stack: Path) -> Result:
    return CliRunner().invoke(app, [arguments[0], "--config", str(stack), *arguments[1:]])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception


def references(registry: str = REGISTRY, version: str = "24.11") -> list[str]:
    return [f"{registry}/{role}:{image_tag(version)}" for role in ROLES]


def option(call: list[str], name: str) -> str:
    return call[call.index(name) + 1]


def test_the_first_tool_on_the_path_is_taken(tools: FakeTools, stack: Path) -> None:
    tools.add(*TOOLS)
    for tool in TOOLS:
        result = images("build", "--json", stack=stack)
        data = json.loads(result.stdout)
        assert (data["tool"], data["tag"]) == (tool, image_tag("24.11"))
        assert list(data["references"].values()) == references()
        assert "Build controller" in result.stderr
        (tools.directory / tool).unlink()
    assert "--tool local" in failure_of(images("build", stack=stack)).hint


@pytest.mark.parametrize("tool", TOOLS)
def test_each_role_is_built_from_the_suite_that_carries_slurm(tools: FakeTools, stack: Path, tool: str) -> None:
    tools.add(tool)
    result = images("build", "--slurm-version", "26.05", "--no-cache", stack=stack)
    assert result.exit_code == 0, result.output
    calls = tools.calls(tool, "build")
    assert [option(call, "--target") for call in calls] == list(ROLES)
    assert [option(call, "--tag") for call in calls] == references(version="26.05")
    assert {option(call, "--build-arg") for call in calls} == {"BASE=docker.io/library/debian:forky-slim"}
    assert all({"--no-cache", "--pull"} <= set(call) for call in calls)


def test_a_failed_build_shows_the_last_lines_and_where_all_are(tools: FakeTools, stack: Path) -> None:
    tools.add("podman")
    printed = "\n".join([*(f"line {number}" for number in range(100)), "E: Unable to locate package slurmctld"])
    tools.fail("podman", "build", printed, on="login")
    failure = failure_of(images("build", "--base", "mirror.example/debian:trixie", stack=stack))
    assert "building login failed" in failure.message
    assert "E: Unable to locate package slurmctld" in failure.message
    assert "line 50" not in failure.message
    log = stack.parent / ".slurmstack" / "test" / "images-build.log"
    assert str(log) in failure.hint
    assert "line 50" in log.read_text()
    calls = tools.calls("podman", "build")
    assert [option(call, "--target") for call in calls] == ["controller", "worker", "login"]
    assert {option(call, "--build-arg") for call in calls} == {"BASE=mirror.example/debian:trixie"}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_push_tells_what_the_stack_file_needs_and_pins_it_where_asked(
    tools: FakeTools, stack: Path, tool: str
) -> None:
    tools.add(tool)
    before = stack.read_bytes()
    result = images("push", stack=stack)
    assert result.exit_code == 0, result.output
    shown = yaml.safe_load(result.stdout.partition("--pin):")[2])["slurmstack:images"]
    digests = {role: digest_of(name) for role, name in zip(ROLES, references(), strict=True)}
    assert shown == {"registry": REGISTRY, "digests": digests}
    assert stack.read_bytes() == before
    assert images("push", "--pin", stack=stack).exit_code == 0
    assert load_stack_file(stack).images.digests == digests


def test_a_push_that_breaks_off_pins_nothing(tools: FakeTools, stack: Path) -> None:
    tools.add("podman")
    tools.fail("podman", "push", "Error: writing blob: connection reset by peer", on="login")
    before = stack.read_bytes()
    failure = failure_of(images("push", "--pin", stack=stack))
    assert "connection reset by peer" in failure.message
    assert len(tools.calls("podman", "push")) == 3
    assert stack.read_bytes() == before
