"""An nvidia-smi for machines without GPUs.

What it says lies in the directory that FAKE_GPUS names (/run/fake-gpus if nothing does), to be changed while it is in
use: `gpus.csv`, all fields, with names in the first line. Needs no more than Python's standard library, so that it runs
in images.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SAYS = Path(os.environ.get("FAKE_GPUS", "/run/fake-gpus"))


def _text(name: str) -> str:
    path = SAYS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _query(wanted: list[str]) -> int:
    lines = _text("gpus.csv").splitlines()
    if len(lines) < 2:
        print("No devices were found")
        return 6
    names = lines[0].split(", ")
    for field in wanted:
        if field not in names:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    for line in lines[1:]:
        values = dict(zip(names, line.split(", "), strict=True))
        print(", ".join(values[field] for field in wanted))
    return 0


def nvidia_smi(arguments: list[str]) -> int:
    """The calls that the checks make."""
    first = arguments[0] if arguments else ""
    if first.startswith("--query-gpu="):
        return _query(first.partition("=")[2].split(","))
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    return 2


def main() -> int:
    """Entry point."""
    return nvidia_smi(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
