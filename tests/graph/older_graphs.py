"""Keeps what this commit makes, for the tests of later commits: `python -m tests.graph.older_graphs COMMIT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cli.program.recording import _STAND_INS
from tests import stacks
from tests.graph.state import state_of
from tests.recordings import record

OLDER = Path(__file__).parent / "older"
STACKS = {
    "dev": stacks.dev,
    "existing": stacks.existing_full,
    "nebius": stacks.nebius,
    "nebius-full": stacks.nebius_full,
}


def keep(commit: str) -> None:
    """Write the state of each stack to `older/COMMIT/STACK.json`."""
    directory = OLDER / commit
    directory.mkdir(parents=True)
    for name, make in STACKS.items():
        sections = make()
        state = state_of(
            record(sections, stack="test"), {type_: {"status": value} for type_, value in _STAND_INS.items()}
        )
        for item in state["deployment"]["resources"]:
            if not item["type"].startswith("nebius:"):
                item.pop("outputs", None)  # they repeat the inputs
        document = {"sections": sections, "state": state}
        (directory / f"{name}.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    keep(sys.argv[1])
