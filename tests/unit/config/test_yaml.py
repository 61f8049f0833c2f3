"""What YAML itself allows and a stack file does not: numbers that are read as others, text that is no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from config import ConfigError, load_stack_file
from config.load import read_document


def refusal(path: Path, text: str) -> str:
    """What a reader of this stack file is told, without the file's name."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_stack_file(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            "010",
            "has 010 in line 2, which YAML reads in base 8: write it without the leading 0, or in quotes if it is ",
        ),
        ("-010", "has -010 in line 2, which YAML reads in base 8: "),
        ("08", "login.size: '08' is not a whole number: write one without quotes, unit and leading 0"),
        ("2026-13-01", "has 2026-13-01 in line 2, which is no timestamp: write it in quotes if it is text"),
        ("!!bool 3", "has 3 in line 2, which is no bool"),
        ("!mine 3", "is not valid YAML in line 2: could not determine a constructor for the tag '!mine'"),
        ("\x01", "is not valid YAML: unacceptable character #x0001: special characters are not allowed"),
    ],
)
def test_a_value_that_is_not_what_its_writer_sees_is_told_as_written(tmp_path: Path, value: str, told: str) -> None:
    found = refusal(tmp_path / "Pulumi.test.yaml", f"config:\n  slurmstack:login: {{size: {value}}}\n")
    assert found.splitlines()[0].startswith(told)


def test_a_leading_zero_is_kept_in_quotes_and_in_text(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text("config: {a: '010', b: 010-x, c: 0.10, d: 0, e: 00:10, f: 0o10}\n", encoding="utf-8")
    assert read_document(file)["config"] == {"a": "010", "b": "010-x", "c": 0.1, "d": 0, "e": "00:10", "f": 8}
