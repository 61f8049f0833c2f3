"""What Slurm says, for tests of the dashboard's page."""

from __future__ import annotations

import base64
import json
from typing import Any

from images.common.slurm_jobs import Job
from images.dashboard.slurm import JOB_FIELDS, NODE_FIELDS, Record, Slurm, SlurmAwayError, Token

NOW = 1_800_000_000


def node(name: str = "cpu-0", **fields: str) -> Record:
    usual = {
        "NodeHost": name, "Partition": "main*", "StateLong": "idle", "Reason": "none",
        "CPUsState": "0/4/0/4", "Gres": "(null)", "GresUsed": "gpu:0",
    }  # fmt: skip
    assert tuple(usual) == NODE_FIELDS
    return {**usual, **fields}


def job(**fields: Any) -> Job:
    usual = {
        "id": "7", "user": "alice", "account": "physics", "partitions": ("main",), "state": "RUNNING", "reason": "",
        "submitted": NOW - 600, "eligible": NOW - 600, "used": 60, "limit": 86_400, "min_nodes": 1,
        "cpus": 2, "node_list": "cpu-0", "name": "train",
    }  # fmt: skip
    assert tuple(usual) == JOB_FIELDS
    return Job(**{**usual, **fields})


def pending(**fields: Any) -> Job:
    return job(**{"state": "PENDING", "reason": "Resources", "node_list": "", **fields})


def encoded(claims: str) -> str:
    body = base64.urlsafe_b64encode(claims.encode()).decode()
    return f"e30.{body.rstrip('=')}.c2ln"


def made_token(**claims: Any) -> str:
    return encoded(json.dumps({"sun": "alice", "exp": NOW + 600, **claims}))


class Fixed(Slurm):
    """Slurm's answers, given."""

    def __init__(self, nodes: list[Record], jobs: list[Job]) -> None:
        super().__init__()
        self.given = nodes, jobs
        self.away = ""

    def cluster(self) -> str:
        return "hpc"

    def nodes(self, _: Token) -> list[Record]:
        if self.away:
            raise SlurmAwayError(self.away)
        return self.given[0]

    def jobs(self, _: Token) -> list[Job]:
        return self.given[1]
