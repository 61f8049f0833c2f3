"""A section that is written is read, or refused: a key beside ours would lock out every user without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config import ConfigError
from config.load import read_sections


def refused(path: Path, text: str) -> list[str]:
    """What a reader of this stack file is told."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_sections(path)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("partitions", "write `slurmstack:partitions:`"),
        ("user", "did you mean `slurmstack:users:`? (a key for a provider begins with the provider's name)"),
        ("zone", "or the provider's name before it if it is for a provider"),
        ("slurmstack.users", "write `slurmstack:users:`"),
        ("slurmstack", "give each section a key of its own, for example `slurmstack:worker_nodes:`"),
        ("slurm:controller", "write `slurmstack:controller:`"),
        ("slurm-stack:users", "write `slurmstack:users:`"),
        ("Slurmstack:users", "write `slurmstack:users:`"),
        ("slurmstck:users", "write `slurmstack:users:`"),
        ("cluster:users", "write `slurmstack:users:`"),
        (
            "7",
            "write `slurmstack:` and the name of a section, or the provider's name before it if it is for a provider",
        ),
    ],
)
def test_a_key_that_would_be_overlooked_is_refused_with_what_to_write(tmp_path: Path, key: str, advice: str) -> None:
    (found,) = refused(tmp_path / "Pulumi.test.yaml", f"config:\n  slurmstack:login: {{}}\n  {key}: {{storge: 10Gi}}\n")
    assert found.startswith(f"{key}: ")
    assert found.endswith(advice)


def test_a_section_at_the_margin_is_refused(tmp_path: Path) -> None:
    text = (
        "config:\n  slurmstack:login: {}\nslurmstack:users: {}\npartitions: {}\nencryptionsalt: v1\nenvironment: []\n"
    )
    found = refused(tmp_path / "Pulumi.test.yaml", text)
    assert [line.partition(": ")[0] for line in found] == ["slurmstack:users", "partitions"]
    assert found[0].endswith("indent it below that: write `slurmstack:users:`")


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes:cluster",
        "nebius:users",
        "pulumi:tags",
        "random:images",
        "aws:region",
        "localstack:endpoint",
        "openstack:cloud_name",
    ],
)
def test_keys_of_others_are_left_alone(tmp_path: Path, key: str) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(json.dumps({"config": {"slurmstack:login": {"size": 2}, key: "x"}}), encoding="utf-8")
    assert read_sections(file) == {"login": {"size": 2}}
