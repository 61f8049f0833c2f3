"""filesystem-throughput: throughput of one stream to and from the shared file system, by fio, past the page cache."""

from __future__ import annotations

from typing import Final

from images.health.node_tests.contract import SCRATCH, NodeTest, Place, Reading, UnreadableError
from images.health.node_tests.kinds.lines import positive

_KEEP: Final = r"^3;[^;]*;(\w+);[^;]*;(\d+);[^;]*;(\d+);(?:[^;]*;){40}(\d+);"
"""Name of the job, error, speed of reading and of writing in KiB/s: fields of fio's terse output, version 3 (fio(1),
"TERSE OUTPUT")."""
_KIB: Final = 1024


def _command(_place: Place) -> tuple[str, ...]:
    return (
        "fio",
        "--output-format=terse",
        "--terse-version=3",
        f"--filename={SCRATCH}/file",
        "--size=1G",
        "--bs=1M",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=16",
        "--name=write",
        "--rw=write",
        "--end_fsync=1",
        "--name=read",
        "--stonewall",
        "--rw=read",
    )


def _read(text: str) -> Reading:
    rows = {
        fields[0]: fields
        for line in text.splitlines()
        if len(fields := line.split()) == len(("name", "error", "r", "w"))
    }
    if set(rows) != {"write", "read"}:
        raise UnreadableError("not one row for writing and one for reading")
    if errors := [fields[1] for fields in rows.values() if fields[1] != "0"]:
        raise UnreadableError(f"fio says error {errors[0]}")
    return Reading(
        figures={
            "write": positive(rows["write"][3]) * _KIB / 1e6,
            "read": positive(rows["read"][2]) * _KIB / 1e6,
        }
    )


TEST: Final = NodeTest(
    name="filesystem-throughput",
    summary="throughput of the shared file system for one stream (fio, 1 GB written and read)",
    command=_command,
    keep=_KEEP,
    read=_read,
    units={"write": "MB/s", "read": "MB/s"},
    seconds=120,
    fault="node",
)
