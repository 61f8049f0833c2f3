"""Writes what the refusals say anew."""

from __future__ import annotations

from tests.unit.config.cases import MESSAGES, cases, written

lines = []
for sentence, found in cases().items():
    told = [line for case in found for line in case.told]
    if told:
        lines += [sentence, *(f"  {written(line)}" for line in told)]
MESSAGES.write_text("\n".join(lines) + "\n", encoding="utf-8")
