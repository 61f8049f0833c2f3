"""Images that real tools build and push arrive in a real registry under the digests that are pinned."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.commands.images import app
from cli.errors import Failure
from cli.images.build import build_images
from cli.images.names import ImageNames
from cli.images.tools import Tool
from config.load import load_stack_file
from local.report import PlainReport
from slurm.images import DEFAULT_REGISTRY, ROLES, JailExtras
from tests import stacks
from tests.images.registry import PASSWORD, Registry, basic_auth
from tests.unit.cli.command_line import stack_file

TAG = "24.11-test"


def write_stack(directory: Path, registry: str) -> Path:
    return stack_file(directory, {**stacks.existing(), "images": {"registry": registry, "tag": TAG}})


def names_in(registry: str) -> ImageNames:
    return ImageNames(registry=registry, tag=TAG, slurm_version="24.11")


def build(tool: str, registry: str, sources: Path, directory: Path) -> Path:
    """Build the small images for a registry; returns a stack file that names it."""
    opened = Tool(name=tool, log=directory / "log")
    build_images(opened, names_in(registry), PlainReport(), base="scratch", sources=sources)
    return write_stack(directory, registry)


@pytest.fixture(scope="module")
def built(tool: str, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tool that has the images; `named` gives them the names of a registry without building again."""
    build(tool, DEFAULT_REGISTRY, sources, tmp_path_factory.mktemp("log"))
    return tool


def named(tool: str, registry: str, directory: Path) -> Path:
    """Name what was built for a registry; returns a stack file that names it."""
    for role in ROLES:
        names = (names_in(DEFAULT_REGISTRY).reference(role), names_in(registry).reference(role))
        Tool(name=tool, log=directory / "log").run(["tag", *names], "naming")
    return write_stack(directory, registry)


def push(stack: Path, tool: str, *more: str) -> Result:
    return CliRunner().invoke(app, ["push", "--config", str(stack), "--tool", tool, *more])


def failure_of(result: Result) -> Failure:
    assert isinstance(result.exception, Failure), result.output
    return result.exception


def assert_whole(registry: Registry, repository: str, tag: str, digest: str) -> None:
    """The tag and the digest name the same manifest, whose content is that digest, and whose layers are there."""
    named, body = registry.manifest(repository, tag)
    assert named == digest
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == digest
    assert registry.manifest(repository, digest) == (digest, body)
    manifest = json.loads(body)
    for blob in (manifest["config"], *manifest["layers"]):
        assert registry.has_blob(repository, blob["digest"])


def test_pinned_digests_are_those_of_the_registry(
    built: str, start_registry: Callable[..., Registry], tmp_path: Path
) -> None:
    registry = start_registry()
    stack = named(built, f"{registry.address}/team/slurm", tmp_path)
    result = push(stack, built, "--no-tls-verify", "--pin", "--json")
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    images = load_stack_file(stack).images
    assert images.digests == json.loads(result.stdout)["digests"]
    assert len(set(images.digests.values())) == len(ROLES)
    for role in ROLES:
        assert_whole(registry, f"team/slurm/{role}", TAG, images.digests[role])  # type: ignore[index]


def test_the_same_sources_have_the_same_digests_at_the_next_build(
    tool: str, start_registry: Callable[..., Registry], sources: Path, tmp_path: Path
) -> None:
    registry = start_registry()
    digests = []
    for _ in range(2):
        stack = build(tool, registry.address, sources, tmp_path)
        digests.append(json.loads(push(stack, tool, "--no-tls-verify", "--json").stdout)["digests"])
    assert digests[0] == digests[1]


def test_what_the_stack_wants_in_the_jail_arrives_in_its_build(tool: str, sources: Path, tmp_path: Path) -> None:
    extras = JailExtras(packages=("bc", "vim"), cuda=True)
    names = ImageNames(registry=DEFAULT_REGISTRY, tag=TAG, jail_tag="besides", slurm_version="24.11", extras=extras)
    # Sources of its own: buildah takes a LABEL from its cache whatever the arguments are; a RUN it does not.
    own = shutil.copytree(sources, tmp_path / "sources")
    (own / "jail.txt").write_text("another jail\n")
    opened = Tool(name=tool, log=tmp_path / "log")
    build_images(opened, names, PlainReport(), base="scratch", sources=own)
    opened.run(["inspect", "--type", "image", f"{DEFAULT_REGISTRY}/jail:besides"], "looking")
    assert '"besides": "cuda/bc vim"' in opened.log.read_text()


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Registry, str], None]:
    """Writes what `login` would, with any password."""

    def write(registry: Registry, password: str) -> None:
        file = tmp_path / "auth.json"
        file.write_text(json.dumps({"auths": {registry.address: {"auth": basic_auth(password)}}}))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(file))

    return write


def test_a_registry_with_credentials(
    built: str, start_registry: Callable[..., Registry], tmp_path: Path,
    credentials: Callable[[Registry, str], None],
) -> None:  # fmt: skip
    registry = start_registry(with_password=True)
    stack = named(built, registry.address, tmp_path)
    before = stack.read_bytes()
    for password in ("wrong", None):
        if password:
            credentials(registry, password)
        else:
            (tmp_path / "auth.json").write_text("{}")
        assert "auth" in failure_of(push(stack, built, "--no-tls-verify", "--pin")).message
        assert stack.read_bytes() == before
    credentials(registry, PASSWORD)
    result = push(stack, built, "--no-tls-verify", "--pin", "--json")
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    for role, digest in json.loads(result.stdout)["digests"].items():
        assert_whole(registry, role, TAG, digest)
    log = (tmp_path / ".slurmstack/test/images-push.log").read_text()
    assert PASSWORD not in log
    assert basic_auth(PASSWORD) not in log
