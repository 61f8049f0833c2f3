"""What squeue prints for a `--Format` that it is asked for, from rows of its columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

RUNNING = {
    "JobArrayID": "7", "JobID": "7", "UserName": "alice", "Account": "default", "Partition": "main",
    "State": "RUNNING", "Reason": "None", "NodeList": "cpu-3", "TimeLeft": "UNLIMITED", "TimeLimit": "UNLIMITED",
    "NumNodes": "1", "MinCpus": "1", "ReqNodes": "", "EligibleTime": "N/A", "SubmitTime": "N/A", "StartTime": "N/A",
    "EndTime": "N/A", "RestartCnt": "0", "QOS": "normal", "ReasonList": "",
}  # fmt: skip
"""Columns of a job as squeue of 24.11 and 26.05 prints them."""


def printed(asked: str, rows: Iterable[Mapping[str, str]]) -> str:
    """`asked`: anything that has the option in it. A row's other columns are those of RUNNING."""
    fields = re.findall(r"([A-Za-z_-]+):\d+(~[0-9a-f]+[~!])", asked.partition("--Format=")[2])
    assert fields, asked
    return "".join("".join({**RUNNING, **row}[name] + mark for name, mark in fields) + "\n" for row in rows)
