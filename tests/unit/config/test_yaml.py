"""What YAML itself allows and a stack file does not: numbers that are read as others, floods of aliases, tags."""

from __future__ import annotations

from itertools import pairwise
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


def flood(step: str) -> str:
    """Nine levels of nine aliases each. `step`: how a level is written, with `{}` where its nine aliases stand."""
    levels = "abcdefghi"
    lines = [f"{name}: &{name} " + step.format(",".join([f"*{below}"] * 9)) for below, name in pairwise(levels)]
    return "\n".join(["a: &a {x: 1}", *lines, "config: {slurmstack:worker_nodes: *i}\n"])


@pytest.mark.parametrize("step", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merged maps"])
def test_aliases_of_aliases_are_counted_and_never_written_out(tmp_path: Path, step: str) -> None:
    told = refusal(tmp_path / "Pulumi.test.yaml", flood(step))
    assert told == "has more than 1,000,000 values, counting what aliases (*) stand for"


def test_a_large_stack_is_no_flood(tmp_path: Path) -> None:
    """Seven thousand users have 105,000 values, as what these aliases stand for."""
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(f"config: {{a: &a [{'1, ' * 1000}], b: [{'*a, ' * 104}]}}\n", encoding="utf-8")
    assert sum(map(len, read_document(file)["config"]["b"])) == 104_000


@pytest.mark.parametrize("levels", [400, 2000])
def test_what_is_nested_too_deeply_is_told_in_one_line(tmp_path: Path, levels: int) -> None:
    told = refusal(
        tmp_path / "Pulumi.test.yaml", "config: {slurmstack:worker_nodes: " + "[" * levels + "]" * levels + "}\n"
    )
    assert "Traceback" not in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("010", "has 010 in line 2, which YAML reads as 8: write it without the leading 0, or in quotes if it is text"),
        ("-010", "has -010 in line 2, which YAML reads as -8: "),
        ("00", "has 00 in line 2, which YAML reads as 0: "),
        ("!!int '010'", "has 010 in line 2, which YAML reads as 8: "),
        ("08", "login.size: '08' is not a whole number: write it without the leading 0"),
        ("'010'", "login.size: '010' is not a whole number: write it without the leading 0"),
        ("0o", "login.size: '0o' is not a whole number"),
        ("0b_", "has 0b_ in line 2, which is not a whole number: write it in quotes if it is text"),
        ("0x" + "f" * 5000, "has a number of 5002 characters in line 2; 40 at most"),
        ("2026-01-01", "login.size: 2026-01-01 is not a whole number"),
        ("2026-13-01", "has 2026-13-01 in line 2, which is not a date of the calendar: write it in quotes if it is"),
        ("!!bool 3", "has 3 in line 2, which is not true or false"),
        ("!!timestamp 3", "has 3 in line 2, which is not a date of the calendar"),
        ("!!float x", "has x in line 2, which is not a number"),
        ("!!binary aGVsbG8=", "has the tag !!binary in line 2, which means nothing here: leave it out"),
        ("!!set {a, b}", "has the tag !!set in line 2, which means nothing here: leave it out"),
        ("!mine 3", "has the tag !mine in line 2, which means nothing here: leave it out"),
        ("\x01", "is not valid YAML: unacceptable character #x0001: special characters are not allowed"),
    ],
)
def test_a_value_that_is_not_what_its_writer_sees_is_told_as_written(tmp_path: Path, value: str, told: str) -> None:
    found = refusal(tmp_path / "Pulumi.test.yaml", f"config:\n  slurmstack:login: {{size: {value}}}\n")
    assert found.splitlines()[0].startswith(told)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("~", "has an empty key in line 2: write a name before the colon"),
        ("null", "has an empty key in line 2: write a name before the colon"),
        ("true", "has the key true in line 2, which is not text: write it in quotes"),
        ("24.11", "has the key 24.11 in line 2, which is not text: write it in quotes"),
        ("2026-01-01", "has the key 2026-01-01 in line 2, which is not text: write it in quotes"),
        ("[a]", "has a list or a map in line 2 where a key belongs: write text with [ or { in quotes"),
    ],
)
def test_a_key_is_text(tmp_path: Path, key: str, told: str) -> None:
    text = f"config:\n  slurmstack:worker_nodes: {{? {key} : {{size: 1}}}}\n"
    assert refusal(tmp_path / "Pulumi.test.yaml", text) == told


def test_a_leading_zero_is_kept_in_quotes_and_in_text(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text("config: {a: '010', b: 010-x, c: 0.10, d: 0, e: 00:10, f: 0o10}\n", encoding="utf-8")
    assert read_document(file)["config"] == {"a": "010", "b": "010-x", "c": 0.1, "d": 0, "e": "00:10", "f": 8}
