"""The images of the local cluster in a real registry. Whatever build is there will do: none is made here."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cli.commands.images import app
from cli.images.tools import LOCAL, open_tool
from local import images
from local.report import PlainReport
from slurm.images import DEFAULT_REGISTRY, ROLES, image_reference
from tests import stacks
from tests.images.registry import Registry


@pytest.fixture
def built_tag() -> str:
    """The tag of a build that the local cluster's store has for all roles."""
    if os.geteuid() != 0:
        pytest.skip("the local cluster's image store needs root")
    with images._MACHINE_LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.skip("a build of images is going on, which may take minutes")
    with images.image_store(PlainReport()) as store:
        present = set(store.images())
    tags = {name.rpartition(":")[2] for name in present}
    whole = [tag for tag in sorted(tags) if {_plain(role, tag) for role in ROLES} <= present]
    if not whole:
        pytest.skip("no images were built on this machine yet; `slurmstack local up` or the tests of Slurm do")
    return whole[0]


@pytest.fixture
def registry_with_names(built_tag: str, start_registry: Callable[..., Registry]) -> Iterator[Registry]:
    """A registry for which the store's images have names, as `images build --tool local` gives them."""
    registry = start_registry()
    names = {role: image_reference(role, registry=registry.address, tag=built_tag) for role in ROLES}
    with open_tool(LOCAL, PlainReport()) as tool:
        for role, name in names.items():
            tool.tag(_plain(role, built_tag), name)
    yield registry
    with open_tool(LOCAL, PlainReport()) as tool:
        for name in names.values():
            assert tool.ask("rmi", name).returncode == 0
        assert tool.has(_plain("jail", built_tag))


def test_all_roles_arrive_whole(registry_with_names: Registry, built_tag: str, tmp_path: Path) -> None:
    registry = registry_with_names
    sections = {**stacks.existing(), "images": {"registry": registry.address, "tag": built_tag}}
    stack = tmp_path / "Pulumi.test.yaml"
    stack.write_text(yaml.safe_dump({"config": {f"slurmstack:{key}": value for key, value in sections.items()}}))
    options = ["--config", str(stack), "--tool", "local", "--no-tls-verify", "--json"]
    result = CliRunner().invoke(app, ["push", *options])
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    digests = json.loads(result.stdout)["digests"]
    assert set(digests) == set(ROLES)
    for role, digest in digests.items():
        named, body = registry.manifest(role, built_tag)
        assert named == digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
        manifest = json.loads(body)
        for blob in (manifest["config"], *manifest["layers"]):
            assert registry.has_blob(role, blob["digest"])
        assert sum(layer["size"] for layer in manifest["layers"]) > 20_000_000


def _plain(role: str, tag: str) -> str:
    return image_reference(role, registry=DEFAULT_REGISTRY, tag=tag)
