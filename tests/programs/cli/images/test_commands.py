"""`slurmstack images`, with docker, podman, buildah, kind and k3s that only note what they are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.commands.images import app
from cli.errors import Failure
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


def on_context(tmp_path: Path, context: str | None, **images: object) -> Path:
    sections = stacks.existing()
    sections["cloud"] = {"kind": "existing", **({"context": context} if context else {})}
    sections["images"] = images
    return stack_file(tmp_path, sections)


def images(*arguments: str, stack: Path) -> Result:
    return CliRunner().invoke(app, [arguments[0], "--config", str(stack), *arguments[1:]])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception


def references(registry: str = REGISTRY, version: str = "24.11") -> list[str]:
    return [f"{registry}/{role}:{image_tag(version)}" for role in ROLES]


def option(call: list[str], name: str) -> str:
    return call[call.index(name) + 1]


def test_docker_is_taken_where_its_daemon_answers(tools: FakeTools, stack: Path) -> None:
    tools.add("docker", "podman", "buildah")
    result = images("build", "--json", stack=stack)
    assert json.loads(result.stdout)["tool"] == "docker"
    assert not tools.calls("podman")


def test_without_a_docker_daemon_podman_builds_and_then_buildah(tools: FakeTools, stack: Path) -> None:
    tools.add("docker", "podman", "buildah")
    tools.fail("docker", "version", "Cannot connect to the Docker daemon. Is the docker daemon running?")
    assert json.loads(images("build", "--json", stack=stack).stdout)["tool"] == "podman"
    tools.fail("podman", "info", "Error: cannot connect to Podman")
    assert json.loads(images("build", "--json", stack=stack).stdout)["tool"] == "buildah"


def test_where_none_works_each_says_why(tools: FakeTools, stack: Path) -> None:
    tools.add("docker")
    tools.fail("docker", "version", "Is the docker daemon running?")
    failure = failure_of(images("build", stack=stack))
    assert "docker: Is the docker daemon running?" in failure.message
    assert "podman: is not on PATH" in failure.message
    assert "buildah: is not on PATH" in failure.message
    assert "--tool local" in failure.hint


def test_a_tool_that_was_asked_for_is_not_replaced_by_another(tools: FakeTools, stack: Path) -> None:
    tools.add("podman")
    assert "docker: is not on PATH" in failure_of(images("build", "--tool", "docker", stack=stack)).message


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_each_role_is_built_from_the_suite_that_carries_slurm(tools: FakeTools, stack: Path, tool: str) -> None:
    tools.add(tool)
    result = images("build", "--slurm-version", "26.05", stack=stack)
    assert result.exit_code == 0, result.output
    calls = tools.calls(tool, "build")
    assert [option(call, "--target") for call in calls] == list(ROLES)
    assert [option(call, "--tag") for call in calls] == references(version="26.05")
    base = f"docker.io/library/debian@{digest_of('docker.io/library/debian:forky-slim')}"
    assert {option(call, "--build-arg") for call in calls} == {f"BASE={base}"}, "all on the same, by its digest"
    assert base in result.output


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_base_platform_and_cache_are_passed_on(tools: FakeTools, stack: Path, tool: str) -> None:
    tools.add(tool)
    more = ["--base", "mirror.example/debian:trixie", "--platform", "linux/amd64", "--no-cache"]
    result = images("build", *more, stack=stack)
    assert result.exit_code == 0, result.output
    for call in tools.calls(tool, "build"):
        digest = digest_of("mirror.example/debian:trixie")
        assert option(call, "--build-arg") == f"BASE=mirror.example/debian@{digest}"
        assert option(call, "--platform") == "linux/amd64"
        assert "--no-cache" in call
        assert any(word.startswith("--pull") for word in call)
    (pull,) = tools.calls(tool, "pull")
    assert option(pull, "--platform") == "linux/amd64"


@pytest.mark.parametrize("base", ["localhost/debian:mine", f"mirror.example/debian@{digest_of('x')}", "scratch"])
def test_a_base_that_no_registry_has_or_that_is_pinned_already_is_left_as_it_is(
    tools: FakeTools, stack: Path, base: str
) -> None:
    tools.add("podman")
    assert images("build", "--base", base, stack=stack).exit_code == 0
    assert not tools.calls("podman", "pull")
    assert {option(call, "--build-arg") for call in tools.calls("podman", "build")} == {f"BASE={base}"}


@pytest.mark.parametrize("line", ["slurmstack: ", "#12 3.21 slurmstack: "])
def test_a_package_that_does_not_exist_is_the_one_thing_that_is_told(
    tools: FakeTools, tmp_path: Path, line: str
) -> None:
    tools.add("docker")
    tools.fail(
        "docker", "build", f"Reading package lists...\n{line}Debian has no package vom\nERROR: failed", on="jail"
    )
    failure = failure_of(images("build", stack=on_context(tmp_path, "prod", jail={"packages": ["vom"]})))
    assert failure.message == "building jail failed: Debian has no package vom"
    assert "images-build.log" in failure.hint


def test_without_a_registry_the_names_are_those_that_a_stack_without_one_uses(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("podman")
    result = images("build", stack=on_context(tmp_path, "kind-dev"))
    assert result.stdout.split()[-len(ROLES) :] == references("localhost/slurmstack")


def test_a_failed_build_shows_the_last_lines_and_where_all_are(tools: FakeTools, stack: Path) -> None:
    tools.add("podman")
    printed = "\n".join([*(f"line {number}" for number in range(100)), "E: Unable to locate package slurmctld"])
    tools.fail("podman", "build", printed, on="login")
    result = images("build", stack=stack)
    failure = failure_of(result)
    assert "building login failed" in failure.message
    assert "E: Unable to locate package slurmctld" in failure.message
    assert "line 99" in failure.message
    assert "line 50" not in failure.message
    log = stack.parent / ".slurmstack" / "test" / "images-build.log"
    assert str(log) in failure.hint
    assert "line 50" in log.read_text()
    assert "Build worker" in result.output
    assert [option(call, "--target") for call in tools.calls("podman", "build")] == ["controller", "worker", "login"]


def test_json_is_alone_on_standard_output(tools: FakeTools, stack: Path) -> None:
    tools.add("docker")
    result = images("build", "--json", stack=stack)
    data = json.loads(result.stdout)
    assert list(data["references"].values()) == references()
    assert data["tag"] == image_tag("24.11")
    assert "Build controller" in result.stderr


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_a_push_tells_what_the_stack_file_needs(tools: FakeTools, stack: Path, tool: str) -> None:
    tools.add(tool)
    tools.have(tool, *references())
    before = stack.read_bytes()
    result = images("push", stack=stack)
    assert result.exit_code == 0, result.output
    shown = yaml.safe_load(result.stdout.partition("--pin):")[2])
    assert shown["slurmstack:images"] == {
        "registry": REGISTRY,
        "digests": {role: digest_of(name) for role, name in zip(ROLES, references(), strict=True)},
    }
    assert stack.read_bytes() == before


def test_a_push_that_breaks_off_pins_nothing(tools: FakeTools, stack: Path) -> None:
    tools.add("podman")
    tools.have("podman", *references())
    tools.fail("podman", "push", "Error: writing blob: connection reset by peer", on="login")
    before = stack.read_bytes()
    failure = failure_of(images("push", "--pin", stack=stack))
    assert "connection reset by peer" in failure.message
    assert len(tools.calls("podman", "push")) == 3
    assert stack.read_bytes() == before


def test_images_that_were_not_built_are_named_before_anything_is_pushed(tools: FakeTools, stack: Path) -> None:
    tools.add("docker")
    tools.have("docker", *references()[:3])
    failure = failure_of(images("push", stack=stack))
    assert f"docker has no {references()[3]}" in failure.message
    assert "images build" in failure.hint
    assert not tools.calls("docker", "push")


def test_images_that_were_built_without_a_registry_are_not_taken_for_those_of_one(
    tools: FakeTools, stack: Path
) -> None:
    tools.add("buildah")
    tools.have("buildah", *references("localhost/slurmstack"))
    assert references()[0] in failure_of(images("push", stack=stack)).message


def test_docker_alone_decides_about_registries_without_tls(tools: FakeTools, stack: Path) -> None:
    tools.add("docker")
    failure = failure_of(images("push", "--no-tls-verify", stack=stack))
    assert "insecure-registries" in failure.hint


@pytest.mark.parametrize(("tool", "archives"), [("docker", 1), ("podman", 1), ("buildah", len(ROLES))])
def test_kind_gets_archives_of_all_images(tools: FakeTools, tmp_path: Path, tool: str, archives: int) -> None:
    tools.add(tool, "kind")
    tools.have(tool, *references("localhost/slurmstack"))
    result = images("load", stack=on_context(tmp_path, "kind-dev"))
    assert result.exit_code == 0, result.output
    calls = tools.calls("kind")
    assert len(calls) == archives
    assert all(call[1:5] == ["load", "image-archive", "--name", "dev"] for call in calls)
    assert len({call[5] for call in calls}) == archives
    assert not any(Path(call[5]).exists() for call in calls), "archives are left behind"


def test_k3s_is_known_by_its_version(tools: FakeTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.add("docker", "k3s", "kubectl")
    tools.have("docker", *references("localhost/slurmstack"))
    monkeypatch.setenv("FAKE_CONTEXT", "default")
    monkeypatch.setenv("FAKE_VERSION", "v1.33.4+k3s1")
    result = images("load", "--json", stack=on_context(tmp_path, "default"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["into"] == "k3s"
    assert [call[1:4] for call in tools.calls("k3s")] == [["ctr", "images", "import"]]


def test_another_cluster_needs_a_registry(tools: FakeTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.add("docker", "kubectl")
    monkeypatch.setenv("FAKE_CONTEXT", "prod")
    monkeypatch.setenv("FAKE_VERSION", "v1.33.4")
    failure = failure_of(images("load", stack=on_context(tmp_path, "prod")))
    assert "neither kind nor k3s" in failure.message
    assert "images push" in failure.hint


@pytest.mark.parametrize("program", ["kind", "k3s"])
def test_a_missing_program_is_named_before_anything_is_saved(tools: FakeTools, tmp_path: Path, program: str) -> None:
    tools.add("docker")
    tools.have("docker", *references("localhost/slurmstack"))
    failure = failure_of(images("load", "--into", program, stack=on_context(tmp_path, "prod")))
    assert f"{program} is not on PATH" in failure.message
    assert not tools.calls("docker", "save")


def test_a_kind_cluster_can_be_named(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("docker", "kind")
    tools.have("docker", *references("localhost/slurmstack"))
    images("load", "--into", "kind", "--name", "other", stack=on_context(tmp_path, "prod"))
    assert [call[4] for call in tools.calls("kind")] == ["other"]
