"""dcgm-r1, dcgm-r2, dcgm-r3: the levels of `dcgmi diag`, which judge the GPUs themselves.

Level 1 takes seconds, level 2 some two minutes, level 3 up to half an hour (NVIDIA, "DCGM Diagnostics"): that one runs
only where the site asks for it. The table for people is read, as the JSON of one level is too long for what a node can
send back; DCGM 3 and 4 differ in the rows and agree on the words. A row says `| PCIe | Fail - GPU: 3 |`, or, below a
category, `| | GPU3: Fail |`.
"""

from __future__ import annotations

import re
from typing import Final

from images.health.node_tests.contract import DAY_SECONDS, NodeTest, Place, Reading, UnreadableError

_ROW: Final = r"^\| ?(?P<name>[^|]*?) ?\| ?(?P<result>[^|]*?) ?\|$"
_WORD: Final = r"\b(Pass|Fail|Warn|Skip)\b"
_KEEP: Final = r"^\|(?! ?\| ?\w+: (?:Pass|Skip)\b).*\b(?:Pass|Fail|Warn)\b.*\|$"
"""All rows but those of single GPUs that are well, of which there may be a hundred."""


def _read(text: str) -> Reading:
    passed = 0
    bad = []
    name = ""
    for row in re.finditer(_ROW, text, re.MULTILINE):
        name = row["name"] or name
        word = re.search(_WORD, row["result"])
        if word is None:
            continue
        passed += word[1] == "Pass"
        if word[1] == "Fail":
            bad.append(f"{name} {row['result']}")
    if not passed and not bad:
        raise UnreadableError("no test of it passed or failed")
    # A failure of the software (`Permissions and OS Blocks`, a missing library) says nothing about the GPUs.
    hardware = [line for line in bad if not line.startswith(_SOFTWARE)]
    if bad and not hardware:
        raise UnreadableError("; ".join(bad))
    return Reading(bad="; ".join(hardware), passed=not bad, figures={"passed": float(passed)})


_SOFTWARE: Final = (
    "Denylist",
    "Blacklist",
    "NVML Library",
    "CUDA Main Library",
    "CUDA Toolkit",
    "Permissions and OS",
    "Persistence Mode",
    "Environment Variables",
    "Graphics Processes",
    "software",
)
"""Rows of the category Deployment that look at the installation, by how their names begin."""


def _level(level: int, *, seconds: float, interval: float, default: bool = True) -> NodeTest:
    def command(_place: Place) -> tuple[str, ...]:
        return ("dcgmi", "diag", "-r", str(level))

    return NodeTest(
        name=f"dcgm-r{level}",
        summary=f"NVIDIA's diagnostics of the GPUs, level {level} (dcgmi diag -r {level})",
        command=command,
        keep=_KEEP,
        read=_read,
        units={"passed": "tests passed"},
        hardware="gpu",
        gpus=1,
        seconds=seconds,
        interval=interval,
        default=default,
    )


TESTS: Final = (
    _level(1, seconds=60, interval=DAY_SECONDS),
    _level(2, seconds=480, interval=7 * DAY_SECONDS),
    _level(3, seconds=2700, interval=30 * DAY_SECONDS, default=False),
)
