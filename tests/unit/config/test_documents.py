"""The examples in docs/ that are said to be accepted as they are."""

from __future__ import annotations

import textwrap
from pathlib import Path

import jsonschema
import yaml

from config import load_stack_file
from config.schema import stack_file_schema
from tests.stacks import ROOT


def example(document: str) -> str:
    """The one indented stack file in a document."""
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    first = lines.index("    config:")
    length = next(count for count, line in enumerate(lines[first:]) if line and not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[first : first + length]))


def test_the_cluster_of_teams_is_accepted_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.teams.yaml"
    path.write_text(example("accounting.md"), encoding="utf-8")
    config = load_stack_file(path)
    assert config.accounts["students"].parent == "physics"
    assert config.partitions["gpu"].allow_accounts == ("physics",)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), stack_file_schema())
