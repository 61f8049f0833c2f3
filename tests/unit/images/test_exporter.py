"""The names that the exporter gives, and what a round says of what it could read, and of what it could not."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from images.common.slurm_jobs import Job
from images.common.slurm_node import ROLLS
from images.common.slurm_records import NodeRecord, node_of
from images.exporter.metrics import Metrics, put_closed
from images.exporter.program import Rounds
from slurm.alerts import ALERTS
from slurm.dashboards.boards import BOARDS
from slurm.prometheus import LONGEST_VALUE
from tests.figures import OURS, SLURMS
from tests.panels import figures_of
from tests.stacks import ROOT


def test_what_alerts_and_dashboards_ask_for_is_given_and_nothing_else_of_slurms() -> None:
    expressions = [
        *(alert.expression for alert in ALERTS),
        *(query.expression for board in BOARDS for panel in board.panels() for query in panel.queries),
        *(variable.partition(",")[0] for board in BOARDS for variable in board.variables.values()),
    ]
    asked = {name for expression in expressions for name in figures_of(expression)}
    assert {name for name in asked if name.startswith("slurm_")} == set(SLURMS)
    others = ("slurmstack_health_", "slurmstack_machine_")  # of workers and node exporters
    assert {name for name in asked if name.startswith("slurmstack_") and not name.startswith(others)} <= set(OURS)


def test_each_name_is_in_the_documentation() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    several = re.findall(r"`(slurm_\w*){([a-z_,]+)}`", page)
    written = {*re.findall(r"`(\w+)[`{]", page), *(one + name for one, names in several for name in names.split(","))}
    assert {name for name in written if name.startswith("slurm_") and not name.endswith("_")} == set(SLURMS)
    assert {name.removeprefix("slurmstack_") for name in OURS} <= written


NOW = 1_800_000_000.0


def read_node(entry: dict[str, Any]) -> NodeRecord:
    found = node_of(entry, NodeRecord)
    assert found
    return found


def job(**changes: Any) -> Job:
    """One that waits since 100 s."""
    usual: dict[str, Any] = {
        "id": "7", "state": "PENDING", "reason": "Resources", "partitions": ("main", "big"), "account": "physics",
        "eligible": NOW - 100,
    }  # fmt: skip
    return Job(**{**usual, **changes})


def drained(reason: str, by: str = "root", name: str = "n", *states: str) -> NodeRecord:
    return read_node({"name": name, "state": ["DRAIN", *states], "reason": reason, "reason_set_by_user": by})


OFF = ("IDLE", "POWERED_DOWN", "CLOUD")
ELASTIC = [
    read_node({"name": "gpu-0", "state": ["MIXED", "CLOUD"]}),
    drained("slurmstack/elastic: did not come, 2 in vain", "root", "gpu-1", *OFF),
    read_node({"name": "gpu-2", "state": ["MIXED", "POWERING_UP", "CLOUD"]}),
    drained("slurmstack/elastic: no capacity, 12 in vain, again at noon", "root", "far-0", *OFF),
    read_node({"name": "far-1", "state": ["DOWN", "POWERED_DOWN", "CLOUD"], "reason": "ResumeTimeout reached"}),
]

SCHEDULER = (
    "agent_queue_size", "bf_cycle_last", "bf_cycle_mean", "schedule_cycle_mean", "schedule_cycle_last",
    "server_thread_count", "dbd_agent_queue_size",
)  # fmt: skip
ANSWERS: dict[str, Any] = {
    "munge": None,
    "scheduler": dict.fromkeys(SCHEDULER, 7),
    "jobs": [job(), job(state="RUNNING")],
    "nodes": [
        read_node({"name": "n", "state": ["IDLE"]}),
        drained("broken", "alice"),
        read_node({"name": "lost", "state": ["DOWN"]}),
        *ELASTIC,
    ],
    "partitions": ["main"],
    "configuration": {"refused": False, "free_bytes": 1, "size_bytes": 2},
    "slurmdbd": None,
}
"""Of a cluster in which there is something to say of everything."""


def rounds_of(
    answers: dict[str, Any],
    *,
    by_person: bool = True,
    log: Callable[[str], None] = print,
) -> Rounds:
    """`answers`: an exception is raised."""

    def ask(name: str) -> Any:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return answers[name]

    sources: Any = SimpleNamespace(**{name: lambda *_, name=name: ask(name) for name in ANSWERS})
    return Rounds(sources, log, by_person=by_person, now=lambda: NOW, accounting=True)


def text_of(answers: dict[str, Any], **wanted: Any) -> str:
    rounds = rounds_of({**ANSWERS, **answers}, **wanted)
    rounds.round()
    return rounds.text()


def test_a_round_gives_each_name() -> None:
    lines = text_of({}).splitlines()
    assert {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")} == {*SLURMS, *OURS}


def test_an_account_that_a_user_has_made_up_is_no_longer_than_prometheus_takes() -> None:
    made_up = "\N{EURO SIGN}" * 1024
    text = text_of({"jobs": [job(account=made_up), job(account=made_up, state="RUNNING")]})
    found = re.findall(r'account="(.*)"', text)
    assert len(found) == 2
    assert max(len(name.encode()) for name in found) <= LONGEST_VALUE


def test_each_task_of_an_array_that_waits_counts_and_who_is_held_waits_for_nobody() -> None:
    jobs = [job(id="7_[1-4,9]"), job(reason="JobHeldUser"), job(eligible=NOW - 300), job(eligible=NOW + 60)]
    lines = text_of({"jobs": jobs}).splitlines()
    wait = 'slurmstack_job_wait_seconds_max{partition="main",account="physics"} 300'
    assert {"slurm_jobs_pending 8", "slurm_jobs_hold 1", wait} <= set(lines)


def test_with_private_data_no_figure_names_a_user_or_an_account() -> None:
    text = text_of({}, by_person=False)
    assert {"slurm_jobs_running 1", 'slurmstack_job_wait_seconds_max{partition="main"} 100'} <= set(text.splitlines())
    assert not re.search(r"physics|alice|account=", text)


@pytest.mark.parametrize("strange", [{"nodes": ValueError("?")}, {"configuration": "?"}], ids=["read", "understood"])
def test_what_cannot_be_read_or_understood_takes_away_no_figure_of_another_source(strange: dict[str, Any]) -> None:
    ((source, answer),) = strange.items()
    logged: list[str] = []
    answers = {**ANSWERS, source: answer}
    rounds = rounds_of(answers, log=logged.append)
    for _ in range(3):
        rounds.round()
    up = {f'slurmstack_exporter_up{{source="{name}"}} {int(name != source)}' for name in ANSWERS}
    assert {*up, "slurmstack_slurmctld_up 1", "slurm_jobs_pending 1"} <= set(rounds.text().splitlines())
    answers[source] = ANSWERS[source]
    rounds.round()
    assert f'slurmstack_exporter_up{{source="{source}"}} 1' in rounds.text()
    assert (len(logged), logged[-1]) == (2, f"{source}: can be read again")


@pytest.mark.parametrize(
    ("reason", "by", "kind"),
    [
        ("health/dns [node]: no answer", "root", 'health",check="dns'),
        ("Prolog error", "slurm", "prolog"),
        ("Kill task failed", "slurm", "other"),
        ("slurmstack: pod leaving", "root", "other"),
        ("prolog is to be changed", "alice", "administrator"),
        (ROLLS, "root", ""),  # a node that gets a new pod is nothing to mend
    ],
)
def test_it_is_told_for_what_a_node_is_drained(reason: str, by: str, kind: str) -> None:
    metrics = Metrics()
    put_closed(metrics, [drained(reason, by)])
    told = f'slurmstack_node_drained{{node="n",reason_kind="{kind}"}} 1'
    assert metrics.text().splitlines()[1:] == ([told] if kind else [])


def test_nodes_of_elastic_pools_are_targets_while_they_are_up_and_no_alarm_while_they_are_off() -> None:
    answers = {**ANSWERS, "nodes": ELASTIC}
    rounds = rounds_of(answers)
    rounds.round()
    shown = set(rounds.text().splitlines())
    assert [line for line in shown if line.startswith("slurmstack_elastic")] == [
        'slurmstack_elastic_pool_failures{pool="far"} 12'
    ]
    assert not [line for line in shown if line.startswith(("slurmstack_node_drained{", "slurmstack_node_down{"))]
    answers["scheduler"] = answers["slurmdbd"] = ValueError("they do not answer")
    rounds.round()
    assert {"slurmstack_slurmctld_up 0", "slurmstack_slurmdbd_up 0"} <= set(rounds.text().splitlines())
    assert rounds.elastic == ["gpu-0"]
