"""Where images come from, as a stack file says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from config import ConfigError, load_config
from tests import stacks
from tests.unit.config.messages import complaints

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


@pytest.mark.parametrize(
    ("registry", "why"),
    [
        ("a..b", "has the host 'a..b', which no host can be called"),
        ("a-.b/x", "has the host 'a-.b'"),
        ("10.0.0.999/x", "has the host '10.0.0.999', which is no address"),
        ("registry.example:0", "has the port 0, which there is not"),
        ("registry.example:65536/x", "has the port 65536, which there is not"),
    ],
)
def test_a_registry_is_at_a_host_and_a_port_that_can_be(registry: str, why: str) -> None:
    assert f"images.registry: {registry!r} {why}" in problems_with({"registry": registry})


IMAGES: Final[dict[str, Callable[[str], tuple[str, dict[str, Any]]]]] = {
    "logs.otlp.image": lambda image: ("logs", {"otlp": {"endpoint": "https://loki.example.com", "image": image}}),
    "monitoring.kube_state_image": lambda image: (
        "monitoring",
        {"install": True, "kube_state": True, "kube_state_image": image},
    ),
}
"""Where a stack file names an image that is used as it is."""


@pytest.mark.parametrize("where", IMAGES)
@pytest.mark.parametrize(
    "image",
    ["h.example:5000/a/b-c:1.0", f"h.example/a__b/c--d@{DIGEST}", f"10.0.0.1/x:V_1@{DIGEST}", f"h/{'a' * 253}:1"],
)
def test_an_image_has_a_host_a_path_and_a_tag_or_a_digest(where: str, image: str) -> None:
    section, content = IMAGES[where](image)
    load_config({**stacks.existing(), section: content})


@pytest.mark.parametrize("where", IMAGES)
@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("x:", "is not the full name of an image"),
        ("x:1", "is not the full name of an image"),
        ("h.example/x:", "is not the full name of an image"),
        ("h.example/X:1", "is not the full name of an image: HOST/PATH/NAME:TAG, all but the tag in small letters"),
        ("h.example/a..b:1", "is not the full name of an image"),
        ("h.example/a___b:1", "is not the full name of an image"),
        ("h.example/x@sha256:abc", "is not the full name of an image"),
        ("h.example/x", "has neither tag nor digest"),
        ("h.example:5000/x", "has neither tag nor digest"),
        ("h.example:99999/x:1", "has the port 99999, which there is not"),
        ("a..b/x:1", "has the host 'a..b', which no host can be called"),
        ("10.0.0.300:5000/x:1", "has the host '10.0.0.300', which is no address"),
        (f"h/{'a' * 254}:1", "is longer than the 255 characters"),
    ],
)
def test_what_cannot_be_an_image_is_none(where: str, image: str, why: str) -> None:
    section, content = IMAGES[where](image)
    (complaint,) = complaints({**stacks.existing(), section: content})
    assert complaint.startswith(f"{where}: {image[:40]!r}"[:-1])
    assert f" {why}" in complaint  # after the image, of which a long one is not told whole


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
