"""The dashboard's page: what it makes of what Slurm says, and that nothing a user wrote is more than text."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from images.common.slurm_jobs import Job
from images.dashboard import views
from images.dashboard.app import COOKIE, App
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


CLAIMS = base64.urlsafe_b64encode(json.dumps({"sun": "alice", "exp": NOW + 600}).encode()).decode().rstrip("=")
TOKEN = f"e30.{CLAIMS}.c2ln"


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


# ---------------------------------------------------------------- views


def test_a_node_is_shown_with_slurm_s_word_for_its_state_and_its_gpus() -> None:
    for word, state, kind in [
        ("mixed-", "mixed", "busy"),
        ("draining@", "draining", "drained"),
        ("mixed*", "mixed, not responding", "down"),
        ("reserved", "reserved", "other"),
    ]:
        (found,) = views.nodes([node(StateLong=word)])
        assert (found.state, found.kind) == (state, kind)
    for gres, count in [
        ("gpu:h100:8(S:0-1),shard:16", 8),
        ("gpu:a:2(IDX:0,3),gpu:1g.5gb:7(IDX:0-6)", 9),
        ("(null)", 0),
    ]:
        (found,) = views.nodes([node(Gres=gres, GresUsed=gres)])
        assert (found.gpus, found.busy_gpus) == (count, count)


def test_a_node_of_several_partitions_is_one_tile_of_its_pool() -> None:
    found = views.nodes([node("cpu-10"), node("cpu-2"), node("cpu-2", Partition="long"), node("gpu-a-0")])
    assert [(pool.name, [one.name for one in pool.nodes]) for pool in views.pools(found)] == [
        ("cpu", ["cpu-2", "cpu-10"]),
        ("gpu-a", ["gpu-a-0"]),
    ]
    assert found[0].partitions == ("main", "long")


def test_the_queue_s_waiting_time_leaves_out_jobs_that_somebody_holds_back() -> None:
    jobs = [
        job(),
        pending(eligible=NOW - 3600),
        pending(eligible=NOW - 120, reason="Priority"),
        pending(eligible=NOW - 90_000, reason="Dependency"),
        pending(eligible=NOW + 60, reason=""),
        pending(eligible=None, reason="JobHeldUser"),
        pending(partitions=("long", "main"), eligible=NOW - 7200),
    ]
    long, main = views.queues(jobs, views.nodes([node()]), NOW)
    assert (main.partition, main.nodes, main.running, main.pending, main.held) == ("main", 1, 1, 6, 3)
    assert main.longest == "2 h"
    assert (long.partition, long.nodes, long.pending, long.longest) == ("long", 0, 1, "2 h")


# ---------------------------------------------------------------- the page


def served(app: App, path: str, *, token: str = "", **environ: Any) -> tuple[str, Mapping[str, str], str]:
    path, _, query = path.partition("?")
    kept: list[Any] = []
    cookie = {"HTTP_COOKIE": f"other=1; {COOKIE}={token}"} if token else {}
    asked = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query, **cookie, **environ}
    body = b"".join(app(asked, lambda *arguments: kept.extend(arguments)))  # type: ignore[arg-type]
    return kept[0], dict(kept[1]), body.decode()


class Tags(HTMLParser):
    """Every tag and attribute that a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}


HOSTILE = "'\"></title></desc></svg></td><script src=x onerror=alert(1)>{{ 7 * 7 }}<img>&lt;\u202e"


def test_no_field_of_a_node_or_a_job_brings_a_tag_or_an_attribute() -> None:
    def pages(text: str) -> list[str]:
        nodes = [node(**dict.fromkeys(NODE_FIELDS, text)), node(StateLong="down", Reason=text)]
        texts = ("id", "user", "account", "state", "reason", "node_list", "name")
        jobs = [job(**dict.fromkeys(texts, text), partitions=(text,)), pending(reason=text, name=text)]
        app = App(Fixed(nodes, jobs), lambda _: None, lambda: NOW)
        found = [served(app, path, token=TOKEN)[2] for path in ("/dashboard/", "/dashboard/jobs?user=")]
        slurm = Fixed([], [])
        slurm.away = text
        return [*found, served(App(slurm, lambda _: None), "/dashboard/", token=TOKEN)[2]]

    for harmless, hostile in zip(pages("x"), pages(HOSTILE), strict=True):
        assert "{{ 7 * 7 }}" in hostile, "it is shown"
        assert Tags(hostile).found == Tags(harmless).found
        assert "\u202e" not in hostile


def test_a_long_list_of_jobs_is_cut_and_says_so() -> None:
    app = App(Fixed([], [job()] * 501), lambda _: None)
    page = served(app, "/dashboard/jobs", token=TOKEN)[2]
    assert "The first 500 of 501." in page
    assert page.count('<th scope="row">') == 500
