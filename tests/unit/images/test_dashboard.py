"""The dashboard's page: what it makes of what Slurm says, and that nothing a user wrote is more than text."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from images.common.slurm_jobs import Job
from images.dashboard import views
from images.dashboard.app import JOB_FIELDS, App, Slurm, SlurmAwayError, TokenRefusedError, serve
from images.dashboard.views import Node

NOW = 1_800_000_000


def node(name: str = "cpu-0", states: str = "IDLE+DYNAMIC_NORM", **fields: Any) -> Node:
    usual = {"partitions": ("main",), "cpus": 4, "gres_used": "gpu:0"}
    return Node(**{"name": name, "states": frozenset(states.split("+")), **usual, **fields})


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


def token(**claims: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


TOKEN = token(sun="alice")


def basic(password: str = TOKEN, name: str = "alice") -> str:
    """As a browser sends it."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


class Fixed(Slurm):
    """Slurm's answers, given."""

    def __init__(self, nodes: list[Node], jobs: list[Job]) -> None:
        super().__init__()
        self.given = nodes, jobs
        self.away = ""

    def cluster(self) -> str:
        return "hpc"

    def nodes(self, _: str) -> list[Node]:
        if self.away:
            raise SlurmAwayError(self.away)
        return self.given[0]

    def jobs(self, token: str) -> list[Job]:
        if token != TOKEN:
            raise TokenRefusedError
        return self.given[1]


# ---------------------------------------------------------------- views


def test_a_node_is_shown_with_slurm_s_words_for_its_state() -> None:
    for states, shown, kind in [
        ("MIXED+DYNAMIC_NORM+PLANNED", "mixed, planned", "busy"),
        ("MIXED+DRAIN", "mixed, drain", "drained"),
        ("MIXED+NOT_RESPONDING", "mixed, not responding", "down"),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN", "idle, not responding, powered down", "idle"),
        ("IDLE+RESERVED", "idle, reserved", "other"),
    ]:
        found = node(states=states)
        assert (found.state, found.kind) == (shown, kind)


def test_nodes_are_shown_by_pool_and_number() -> None:
    found = views.pools([node("gpu-a-0"), node("cpu-10"), node("cpu-2")])
    assert [(pool, [one.name for one in of]) for pool, of in found.items()] == [
        ("cpu", ["cpu-2", "cpu-10"]),
        ("gpu-a", ["gpu-a-0"]),
    ]


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
    long, main = views.queues(jobs, [node()], NOW)
    assert (main.partition, main.nodes, main.running, main.pending, main.held) == ("main", 1, 1, 6, 3)
    assert main.longest == "2 h"
    assert (long.partition, long.nodes, long.pending, long.longest) == ("long", 0, 1, "2 h")


# ---------------------------------------------------------------- the page


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
        nodes = [node(name=text, states=text, reason=text, partitions=(text,)), node(states="DOWN", reason=text)]
        texts = ("id", "user", "account", "state", "reason", "node_list", "name")
        jobs = [job(**dict.fromkeys(texts, text), partitions=(text,)), pending(reason=text, name=text)]
        app = App(Fixed(nodes, jobs), lambda _: None, lambda: NOW)
        found = [app.answer(f"/dashboard/{path}", {"user": ""}, basic()).body for path in ("", "jobs")]
        slurm = Fixed([], [])
        slurm.away = text
        return [*found, App(slurm, lambda _: None).answer("/dashboard/", {}, basic()).body]

    for harmless, hostile in zip(pages("x"), pages(HOSTILE), strict=True):
        assert "{{ 7 * 7 }}" in hostile, "it is shown"
        assert Tags(hostile).found == Tags(harmless).found
        assert "\u202e" not in hostile


def test_a_long_list_of_jobs_is_cut_and_says_so() -> None:
    app = App(Fixed([], [job()] * 501), lambda _: None)
    page = app.answer("/dashboard/jobs", {"user": ""}, basic()).body
    assert "The first 500 of 501." in page
    assert page.count('<th scope="row">') == 500


def test_the_page_is_for_who_brings_a_token_as_password_and_goes_through_the_socket_of_the_pod(tmp_path: Path) -> None:
    server = serve(App(Fixed([node()], [job()]), lambda _: None, lambda: NOW), tmp_path / "socket")

    def ask(path: str, **headers: str) -> tuple[int, str | None, str]:
        client = http.client.HTTPConnection("pod")
        client.sock = socket.socket(socket.AF_UNIX)
        client.sock.connect(str(tmp_path / "socket"))
        client.request("GET", f"/dashboard/{path}", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.getheader("WWW-Authenticate"), answer.read().decode()

    try:
        others = (token(), token(sun="<b>"), "e30.AAAA.c2ln", f"{TOKEN}x")
        for bad in ({}, {"Authorization": "Basic x"}, *({"Authorization": basic(other)} for other in others)):
            for path in ("", "jobs"):
                status, asks, page = ask(path, **bad)
                assert (status, str(asks)[:6], "cpu-0" in page) == (401, "Basic ", False)
        assert "Jobs of alice" in ask("jobs", Authorization=basic(f"SLURM_JWT={TOKEN}\n"))[2]
        assert "Jobs of alice" in ask("jobs", Authorization=basic(name="Alicia"))[2], "whatever name is typed"
        assert "Jobs of bob" in ask("jobs?user=bob", Authorization=basic())[2]
        assert "<strong>cpu-0</strong>" in ask("", Authorization=basic())[2]
        for dest, status in {"document": 200, "iframe": 403, "image": 403, "empty": 403}.items():
            foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": dest}
            assert ask("", Authorization=basic(), **foreign)[0] == status, "who made the browser ask?"
    finally:
        server.shutdown()
        server.server_close()
