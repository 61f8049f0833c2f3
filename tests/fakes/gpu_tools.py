"""An nvidia-smi for machines without GPUs: what it says lies in /run/fake-gpus/gpus.csv, and may change there.

All fields of each GPU, with names in the first line. Needs only Python's standard library, so that it runs in images.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    """Answers `--query-gpu=FIELD,FIELD`."""
    names, *gpus = (line.split(", ") for line in Path("/run/fake-gpus/gpus.csv").read_text().splitlines())
    for field in wanted:
        if field not in names:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    for values in gpus:
        print(", ".join(values[names.index(field)] for field in wanted))
    if not gpus:
        print("No devices were found")
    return 0 if gpus else 6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].partition("=")[2].split(",")))
