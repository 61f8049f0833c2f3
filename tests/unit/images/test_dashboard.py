"""The dashboard's page: what it makes of what Slurm says, and that nothing a user wrote is more than text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from images.dashboard import views
from images.dashboard.app import COOKIE, App
from images.dashboard.plots import DAY, STEP, Prometheus, plot
from images.dashboard.slurm import NODE_FIELDS
from images.dashboard.views import duration
from tests.unit.images.dashboard_page import NOW, Fixed, job, made_token, node, pending

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
    assert (main.longest, main.middle) == ("2 h", "1 h")
    assert (long.partition, long.nodes, long.pending, long.longest) == ("long", 0, 1, "2 h")


def test_every_task_of_an_array_counts() -> None:
    (main,) = views.queues([pending(id="7_[1-4,9-19:2,30%3]", reason="Dependency")], [], NOW)
    assert (main.pending, main.held) == (11, 11)


def test_times_have_two_units_at_most() -> None:
    assert [duration(value) for value in (-5, 59, 60, 3_700, 90_000, 864_000)] == [
        "0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h", "10 d",
    ]  # fmt: skip


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


def test_no_field_of_a_node_or_a_job_brings_a_tag_or_an_attribute(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=hpc\n")

    def pages(text: str) -> list[str]:
        nodes = [node(**dict.fromkeys(NODE_FIELDS, text)), node(StateLong="down", Reason=text, User=text)]
        texts = ("id", "user", "account", "state", "reason", "node_list", "name", "comment")
        jobs = [job(**dict.fromkeys(texts, text), partitions=(text,)), pending(reason=text, name=text, comment=text)]
        app = App(Fixed(tmp_path, nodes, jobs), None, lambda _: None, lambda: NOW)
        found = [served(app, path, token=made_token())[2] for path in ("/dashboard/", "/dashboard/jobs?user=")]
        slurm = Fixed(tmp_path, [], [])
        slurm.away = text
        return [*found, served(App(slurm, None, lambda _: None), "/dashboard/", token=made_token())[2]]

    for harmless, hostile in zip(pages("x"), pages(HOSTILE), strict=True):
        assert "{{ 7 * 7 }}" in hostile, "it is shown"
        assert Tags(hostile).found == Tags(harmless).found
        assert "\u202e" not in hostile


def test_every_answer_forbids_scripts_frames_and_caches(tmp_path: Path) -> None:
    app = App(Fixed(tmp_path, [], []), None, lambda _: None)
    for path in ("/dashboard/", "/dashboard/jobs", "/dashboard/login", "/dashboard/nothing"):
        _, headers, page = served(app, path, token=made_token())
        policy = headers["Content-Security-Policy"]
        assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy.split("; "))
        assert headers["Cache-Control"] == "no-store"
        assert not {"script", "style"} & {tag for tag, _ in Tags(page).found}
        assert "style" not in {attribute for _, attribute in Tags(page).found}


def test_a_page_reads_itself_anew_only_where_somebody_wants_that(tmp_path: Path) -> None:
    app = App(Fixed(tmp_path, [], []), None, lambda _: None)
    still = served(app, "/dashboard/jobs?user=bob", token=made_token())[2]
    assert 'http-equiv="refresh"' not in still
    assert 'href="?user=bob&amp;refresh="' in still
    assert '<meta http-equiv="refresh" content="60">' in served(app, "/dashboard/?refresh=", token=made_token())[2]


def test_a_long_list_of_jobs_is_cut_and_says_so(tmp_path: Path) -> None:
    app = App(Fixed(tmp_path, [], [job()] * 501), None, lambda _: None)
    page = served(app, "/dashboard/jobs", token=made_token())[2]
    assert "The first 500 of 501." in page
    assert page.count('<th scope="row">') == 500


# ---------------------------------------------------------------- plots


def test_a_gap_in_the_figures_is_a_gap_in_the_line() -> None:
    made = plot("CPUs", {"in use": [0, 10, None, 30], "there": [None] * 4})
    used, there = made.lines
    assert made.top == 50
    assert [plot("", {"": [highest] * 2}).top for highest in (0, 2.5, 51, 100)] == [1, 5, 100, 100]
    assert used.points == ("0.0,150.0 160.0,120.0", "480.0,60.0 480.0,60.0")
    assert used.summary == "last 30, highest 30, mean 13.3"
    assert (there.points, there.summary) == ((), "no figures")


@pytest.fixture
def prometheus() -> Iterator[tuple[str, list[str]]]:
    """What Prometheus' API answers for a range: figures of the last hour of CPUs, else none. And what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            end = NOW // STEP * STEP
            values = [[at, "3"] for at in range(end - 3600, end + 1, STEP)] if "cpus_alloc" in self.path else []
            series = [{"metric": {}, "values": values}] if values else []
            body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_plots_without_figures_are_left_out_and_answers_serve_for_a_minute(prometheus: tuple[str, list[str]]) -> None:
    url, asked = prometheus
    now = [float(NOW)]
    server = Prometheus(url, lambda: now[0])
    (found,) = server.plots()
    assert (found.title, found.lines[0].summary) == ("CPUs", "last 3, highest 3, mean 3.0")
    count = len(asked)
    now[0] += 59
    server.plots()
    assert len(asked) == count
    now[0] += 2
    server.plots()
    assert len(asked) == 2 * count
    assert f"end={NOW // STEP * STEP}" in asked[0]
    assert f"start={NOW // STEP * STEP - DAY}" in asked[0]


def test_a_plot_says_in_words_what_it_shows(tmp_path: Path, prometheus: tuple[str, list[str]]) -> None:
    app = App(Fixed(tmp_path, [], []), Prometheus(prometheus[0], lambda: NOW), lambda _: None)
    page = served(app, "/dashboard/", token=made_token())[2]
    assert 'role="img" aria-labelledby="plot-1 plot-1-text"' in page
    assert '<title id="plot-1">CPUs over the last day</title>' in page
    assert '<desc id="plot-1-text">in use: last 3, highest 3, mean 3.0. there: no figures. </desc>' in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [("all", False), ("Job", False), ("node,users", False), ("jobs", False), ("users,events", True), ("none", True)],
)
def test_plots_are_kept_back_as_slurm_reads_privatedata(
    tmp_path: Path, prometheus: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, value: str, shown: bool
) -> None:
    """It looks for parts of words, in any case, and for `all` (src/common/read_config.c)."""
    (tmp_path / "slurm.conf").write_text(f"PrivateData={value}\n")
    slurm = Fixed(tmp_path, [], [])
    monkeypatch.setattr(slurm, "administers", lambda _: False)
    page = served(App(slurm, Prometheus(prometheus[0], lambda: NOW), lambda _: None), "/dashboard/", token=made_token())
    assert ("CPUs over the last day" in page[2]) is shown
    assert ("Plots are for operators" in page[2]) is not shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("max_token_lifespan=86400", "scontrol token lifespan=28800</code> makes a token that is good for 8 h."),
        ("max_token_lifespan=3600", "scontrol token lifespan=3600</code> makes a token that is good for 1 h."),
        ("max_token_lifespan=86400,disable_token_creation", "Administrators make the tokens here"),
    ],
)
def test_the_command_for_a_token_is_one_that_slurm_takes_here(tmp_path: Path, options: str, said: str) -> None:
    """As rest.max_token_lifespan and rest.token_creation have it."""
    (tmp_path / "slurm.conf").write_text(f"AuthAltParameters=jwt_key=/run/jwt.key,{options}\n")
    app = App(Fixed(tmp_path, [], []), None, lambda _: None)
    assert said in served(app, "/dashboard/login")[2]
    assert ("lifespan" in served(app, "/dashboard/", token="x.y.z")[2]) is ("disable" not in options)
