"""What Slurm says, for tests of the dashboard's page."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from images.dashboard.slurm import JOB_FIELDS, NODE_FIELDS, Record, Slurm, SlurmAwayError, Token

NOW = 1_800_000_000


def node(name: str = "cpu-0", **fields: str) -> Record:
    usual = {
        "NodeHost": name, "Partition": "main*", "StateLong": "idle", "Reason": "none", "User": "Unknown",
        "Timestamp": "Unknown", "CPUsState": "0/4/0/4", "Memory": "2048", "AllocMem": "0", "Gres": "(null)",
        "GresUsed": "gpu:0",
    }  # fmt: skip
    assert tuple(usual) == NODE_FIELDS
    return {**usual, **fields}


def job(**fields: str) -> Record:
    usual = {
        "JobArrayID": "7", "UserName": "alice", "Account": "physics", "Partition": "main", "State": "RUNNING",
        "Reason": "None", "SubmitTime": str(NOW - 600), "EligibleTime": str(NOW - 600), "StartTime": str(NOW - 60),
        "TimeUsed": "1:00", "TimeLimit": "1-00:00:00", "NumNodes": "1", "NumCPUs": "2", "NodeList": "cpu-0",
        "Name": "train", "Comment": "(null)",
    }  # fmt: skip
    assert tuple(usual) == JOB_FIELDS
    return {**usual, **fields}


def pending(**fields: str) -> Record:
    return job(**{"State": "PENDING", "Reason": "Resources", "NodeList": "", "StartTime": "N/A", **fields})


def encoded(claims: str) -> str:
    body = base64.urlsafe_b64encode(claims.encode()).decode()
    return f"e30.{body.rstrip('=')}.c2ln"


def made_token(**claims: Any) -> str:
    return encoded(json.dumps({"sun": "alice", "exp": NOW + 600, **claims}))


class Fixed(Slurm):
    """Slurm's answers, given."""

    def __init__(self, config: Path, nodes: list[Record], jobs: list[Record]) -> None:
        super().__init__(config)
        self.given = nodes, jobs
        self.away = ""

    def nodes(self, _: Token) -> list[Record]:
        if self.away:
            raise SlurmAwayError(self.away)
        return self.given[0]

    def jobs(self, _: Token) -> list[Record]:
        return self.given[1]
