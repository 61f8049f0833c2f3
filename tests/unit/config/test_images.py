"""Where images come from, as a stack file says it."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from tests import stacks

DIGEST = f"sha256:{'a' * 64}"


def problems_with(images: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config({**stacks.existing(), "images": images})
    return "\n".join(f"{problem.where}: {problem.message}" for problem in caught.value.problems)


@pytest.mark.parametrize(
    "registry", ["registry.example", "registry.example:5000/a/b-c", "10.0.0.1:5000", "localhost/x"]
)
def test_a_registry_is_a_host_with_a_port_and_a_path(registry: str) -> None:
    config = load_config({**stacks.existing(), "images": {"registry": registry}})
    assert config.images.registry == registry


@pytest.mark.parametrize(
    "registry", ["https://registry.example", "registry.example/", "a//b", "Registry/x", "a:b/c", ""]
)
def test_what_no_image_name_begins_with_is_no_registry(registry: str) -> None:
    assert "images.registry" in problems_with({"registry": registry})


def test_digests_are_those_of_a_registry() -> None:
    assert "set registry, too" in problems_with({"digests": {"jail": DIGEST}})
    load_config({**stacks.existing(), "images": {"registry": "registry.example/x", "digests": {"jail": DIGEST}}})


@pytest.mark.parametrize("digests", [{"jail": "sha256:abc"}, {"prolog": DIGEST}, {"jail": DIGEST.upper()}])
def test_a_digest_is_whole_and_belongs_to_a_role(digests: dict[str, str]) -> None:
    assert "images.digests" in problems_with({"registry": "registry.example/x", "digests": digests})


@pytest.mark.parametrize("name", ["bc", "g++", "libopenblas-dev", "libstdc++6", "0ad", "python3.13"])
def test_the_jail_s_packages_have_names_as_debian_s_policy_has_them(name: str) -> None:
    config = load_config({**stacks.existing(), "images": {"jail": {"packages": [name, "vim"]}}})
    assert config.images.jail.packages == (name, "vim")


@pytest.mark.parametrize(
    "name", ["", "a", "Vim", "-vim", "vim-", "vim;id", "vim nano", "vim=1", "vim:i386", "vim/sid", "~n"]
)
def test_what_is_no_name_of_a_package_is_none(name: str) -> None:
    assert "is not the name of a Debian package" in problems_with({"jail": {"packages": [name]}})


def test_a_package_is_wanted_once() -> None:
    assert "has 'vim' more than once" in problems_with({"jail": {"packages": ["vim", "vim"]}})


def test_cuda_is_refused_where_debian_has_none_and_what_to_do_is_said() -> None:
    with_cuda = {**stacks.existing(), "images": {"jail": {"cuda": True}}}
    assert load_config(with_cuda).images.jail.cuda
    with pytest.raises(ConfigError) as caught:
        load_config({**with_cuda, "slurm": {"version": "26.05"}})
    (problem,) = caught.value.problems
    assert problem.where == "images.jail.cuda"
    assert "not to be had with Slurm 26.05" in problem.message
    assert "install NVIDIA's own packages, or pip's or conda's, in the jail" in problem.message


def test_a_jail_has_room_for_cuda() -> None:
    with_cuda = {**stacks.existing(), "images": {"jail": {"cuda": True}}}
    with pytest.raises(ConfigError) as caught:
        load_config({**with_cuda, "jail": {"size": "4Gi"}})
    (problem,) = caught.value.problems
    assert problem.where == "jail.size"
    assert "at least 8Gi" in problem.message
    assert load_config({**with_cuda, "jail": {"size": "8Gi"}}).jail.size == "8Gi"
    assert load_config({**stacks.existing(), "jail": {"size": "4Gi"}}).jail.size == "4Gi"
