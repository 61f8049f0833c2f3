"""What is refused in a stack file names the key and says how it can be; what is just right is taken (cases/)."""

from __future__ import annotations

import pytest

from tests.unit.config.cases import cases, messages, written

CASES = cases()


@pytest.mark.parametrize("sentence", CASES)
def test_as_it_is_written(sentence: str) -> None:
    told = []
    for case in CASES[sentence]:
        lines = case.told
        told += lines
        assert len(lines) == len(case.named), (case.changes, lines)
        for line, key in zip(lines, case.named, strict=True):
            assert line.startswith(f"{key}: "), case.changes
            assert line.removeprefix(key).isprintable()
        assert all(f"'{text}'" in "".join(lines) for text in case.quoted), (case.changes, lines)
    assert [written(line) for line in told] == messages().get(sentence, []), (
        "if meant: `python -m tests.unit.config.cases`"
    )


def test_every_message_is_of_a_case() -> None:
    assert messages().keys() <= CASES.keys()
