"""`upgrade rehearse` refuses what no cluster can become, before it asks anybody anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cli.commands import upgrade
from cli.errors import USAGE, Failure
from tests import stacks


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("25.05", "--version 25.05: there is 24.11 and 26.05"),
        ("24.11", "24.11 to 24.11 is no upgrade"),
        ("", "there is 24.11 and 26.05"),
    ],
)
def test_a_release_that_cannot_be_is_refused_with_one_message(tmp_path: Path, version: str, said: str) -> None:
    file = tmp_path / "Pulumi.prod.yaml"
    document = {"config": {f"slurmstack:{name}": value for name, value in stacks.existing_full().items()}}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(Failure, match=said) as caught:
        upgrade.rehearse(file, version=version)
    assert caught.value.code == USAGE
