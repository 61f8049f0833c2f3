"""What a slip of the writer's hand is answered with: one line, in words of YAML, with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from config import ConfigError, load_stack_file


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("config:\n  slurmstack:login:\n    size: 1\n   node_port: 2\n", "in line 4: "),
        ("config:\n  slurmstack:login: {}\n    size: 1\n", "in line 3: "),
        ("config:\n\tslurmstack:login: {}\n", "in line 2: "),
    ],
)
def test_a_wrong_indent_is_told_with_file_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    stack = tmp_path / "Pulumi.indent.yaml"
    stack.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_stack_file(stack)
    assert str(caught.value).startswith(f"{stack}: is not valid YAML {complaint}")
    assert str(caught.value).endswith("; check the indent of this line and of the one above")
