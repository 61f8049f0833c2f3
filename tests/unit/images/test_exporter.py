"""The names that the exporter gives, and what a round says of what it could read, and of what it could not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from images.common.command import Result
from images.common.slurm_node import ROLLS
from images.common.slurm_records import node_of
from images.exporter.figures import GROUPS, OTHERS, put_drained, put_stuck
from images.exporter.names import OURS, SLURMS, Figures
from images.exporter.program import OLD_SECONDS, Rounds
from images.exporter.sources import COLUMNS, NAME_LENGTH, Job, Node, Sources, jobs_of
from slurm.alerts import ALERTS
from slurm.dashboards.boards import BOARDS, Query
from slurm.prometheus import LONGEST_VALUE
from tests.stacks import ROOT


def test_what_alerts_and_dashboards_ask_for_is_given_and_nothing_else_of_slurms() -> None:
    expressions = [
        *(alert.expression for alert in ALERTS),
        *(query.expression for board in BOARDS for panel in board.panels() for query in panel.queries),
        *(variable.partition(",")[0] for board in BOARDS for variable in board.variables.values()),
    ]
    asked = {name for expression in expressions for name in Query(expression).figures}
    assert {name for name in asked if name.startswith("slurm_")} == set(SLURMS)
    others = ("slurmstack_health_", "slurmstack_machine_")  # of workers and node exporters
    assert {name for name in asked if name.startswith("slurmstack_") and not name.startswith(others)} <= set(OURS)


def test_each_name_is_in_the_documentation() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    several = re.findall(r"`(slurm_\w*){([a-z_,]+)}`", page)
    written = {*re.findall(r"`(\w+)[`{]", page), *(one + name for one, names in several for name in names.split(","))}
    assert {name for name in written if name.startswith("slurm_") and not name.endswith("_")} == set(SLURMS)
    assert {name.removeprefix("slurmstack_") for name in OURS} <= written


USUAL = {
    "JobID": "7", "State": "PENDING", "Reason": "Resources", "Partition": "main", "Account": "physics",
    "NumCPUs": "1", "MinCpus": "1", "NumNodes": "1", "EligibleTime": "N/A", "RestartCnt": "0", "tres-alloc": "",
    "ReqNodes": "", "ExcNodes": "", "Feature": "", "ClusterFeature": "", "Reservation": "", "Licenses": "",
    "Dependency": "", "tres-per-job": "N/A", "tres-per-node": "N/A", "tres-per-socket": "N/A", "tres-per-task": "N/A",
    "cpus-per-tres": "N/A", "mem-per-tres": "N/A", "Contiguous": "0", "ReqSwitch": "0", "MinTmpDisk": "0",
    "SCT": "*:*:*", "NTPerCore": "N/A", "NTPerSocket": "N/A", "Network": "", "MCSLabel": "", "BurstBuffer": "",
    "CoreSpec": "N/A", "HetJobID": "N/A",
}  # fmt: skip
"""Columns of a job of `sbatch -n1`, with 24.11 and 26.05."""


def row(**changes: str) -> dict[str, str]:
    """A job that waits."""
    assert tuple(USUAL) == COLUMNS
    assert changes.keys() <= USUAL.keys()
    return {**USUAL, **changes}


def test_what_squeue_shows_is_read_as_slurmctld_has_it() -> None:
    """One of several partitions, the state besides a flag, and nothing for what is no number."""
    shown = row(Partition="main,big", State="CONFIGURING", NumNodes="3-5", EligibleTime="N/A", RestartCnt="N/A")
    (job,) = jobs_of([shown])
    assert (job.partition, job.base_state, job.min_nodes, job.eligible, job.restarts) == ("main", "RUNNING", 3, None, 0)


NOW = 1_800_000_000.0


def read_node(entry: dict[str, Any]) -> Node:
    found = node_of(entry, Node)
    assert found
    return found


def jobs(*changes: dict[str, str]) -> list[Job]:
    """Jobs that wait since 100 s, unless they are said to be otherwise."""
    since = {"EligibleTime": f"{NOW - 100:.0f}"}
    return jobs_of(row(**{"JobID": str(number), **since, **fields}) for number, fields in enumerate(changes))


IDLE = {"name": "n", "state": ["IDLE"], "partitions": ["main"], "cpus": 4, "effective_cpus": 4, "real_memory": 1000}


def drained(reason: str, by: str = "root", name: str = "n", *states: str) -> Node:
    return read_node({"name": name, "state": ["DRAIN", *states], "reason": reason, "reason_set_by_user": by})


OFF = ("IDLE", "POWERED_DOWN", "CLOUD")
ELASTIC = [
    read_node({"name": "gpu-0", "state": ["MIXED", "CLOUD"]}),
    drained("slurmstack/elastic: set aside after 10 starts in vain", "root", "gpu-1", *OFF),
    read_node({"name": "gpu-2", "state": ["MIXED", "POWERING_UP", "CLOUD"]}),
    drained("slurmstack/elastic: no capacity, 1 in vain", "root", "far-0", *OFF),
    read_node({"name": "far-1", "state": ["DOWN", "POWERED_DOWN", "CLOUD"], "reason": "ResumeTimeout reached"}),
]

SCHEDULER = (
    "agent_queue_size", "bf_cycle_last", "bf_cycle_mean", "schedule_cycle_mean", "schedule_cycle_last",
    "server_thread_count", "dbd_agent_queue_size",
)  # fmt: skip
ANSWERS: dict[str, Any] = {
    "munge": None,
    "scheduler": dict.fromkeys(SCHEDULER, 7),
    "jobs": jobs({}, {"State": "RUNNING"}),
    "nodes": [read_node(IDLE), drained("broken", "alice"), read_node({"name": "lost", "state": ["DOWN"]}), *ELASTIC],
    "partitions": ["main"],
    "configuration": {"refused": False, "pending": True, "published": NOW, "free_bytes": 1, "size_bytes": 2},
    "slurmdbd": None,
    "certificates": {"rest": NOW},
}
"""Of a cluster in which there is something to say of everything."""


def rounds_of(
    answers: dict[str, Any],
    *,
    by_person: bool = True,
    now: Callable[[], float] = lambda: NOW,
    log: Callable[[str], None] = print,
) -> Rounds:
    """`answers`: an exception is raised."""

    def ask(name: str) -> Any:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return answers[name]

    sources: Any = SimpleNamespace(**{name: lambda *_, name=name: ask(name) for name in ANSWERS})
    wanted: dict[str, Any] = {"slurms_own": True, "accounting": True, "certificates": {"rest": "tls.crt"}}
    return Rounds(sources, log, by_person=by_person, now=now, **wanted)


def text_of(answers: dict[str, Any], **wanted: Any) -> str:
    rounds = rounds_of({**ANSWERS, **answers}, **wanted)
    rounds.round()
    return rounds.text()


def test_a_round_gives_each_name_with_its_help() -> None:
    lines = text_of({}).splitlines()
    assert {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")} == {*SLURMS, *OURS}
    assert {f"# HELP {name} {told}" for name, told in {**SLURMS, **OURS}.items()} <= set(lines)


def test_whoever_makes_up_accounts_is_among_the_others_and_nobody_is_left_out() -> None:
    made_up = [{"Account": f"{number:04}" + "\N{EURO SIGN}" * 1020} for number in range(3 * GROUPS)]
    waiting = [*made_up, {}, {}]
    all_jobs = jobs(*waiting, *({**job, "State": "RUNNING"} for job in waiting))
    text = text_of({"jobs": all_jobs})
    for figure, labels in (("slurm_account_jobs_running", ""), ("slurmstack_jobs_waiting", 'partition="main",')):
        found = dict(re.findall(rf'^{figure}{{{labels}account="(.*)"}} (\d+)$', text, re.MULTILINE))
        assert len(found) == GROUPS + 1
        assert sum(map(int, found.values())) == 3 * GROUPS + 2
        assert (found["physics"], found[OTHERS]) == ("2", str(2 * GROUPS + 1))
        assert NAME_LENGTH - 3 < max(len(name.encode()) for name in found) <= NAME_LENGTH <= LONGEST_VALUE
    assert sorted(text_of({"jobs": all_jobs[::-1]}).splitlines()) == sorted(text.splitlines())


def test_with_private_data_no_figure_names_a_user_or_an_account() -> None:
    text = text_of({}, by_person=False)
    assert {"slurm_jobs_running 1", 'slurmstack_jobs_waiting{partition="main"} 1'} <= set(text.splitlines())
    assert not re.search(r"physics|alice|account=", text)


def test_a_round_that_never_ends_is_not_told_for_ever() -> None:
    clock = [NOW]
    rounds = rounds_of(ANSWERS, now=lambda: clock[0])
    rounds.round()
    assert "slurm_jobs_pending 1" in rounds.text()
    clock[0] = NOW + OLD_SECONDS + 1
    assert rounds.text() == ""


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


FITS: list[dict[str, str]] = [{}, {"tres-per-task": "cpu=2"}]
WAITS_FOR_ELSE: list[dict[str, str]] = [
    {"Reason": "Dependency"}, {"EligibleTime": f"{NOW - 5:.0f}"}, {"tres-alloc": "cpu=5"}, {"MinCpus": "5"},
    {"tres-alloc": "cpu=1,mem=2G"}, {"tres-alloc": "cpu=1,gres/gpu=1"}, {"tres-per-task": "cpu=2,gres/gpu:1"},
    {"NumNodes": "2"}, {"Feature": "h100"}, {"ExcNodes": "n-[2-4]"}, {"Contiguous": "1"}, {"ReqSwitch": "1"},
    {"SCT": "2:*:*"}, {"HetJobID": "7"},
]  # fmt: skip
TAKES_NONE: list[dict[str, Any]] = [{"state": ["IDLE", "DRAIN"]}, {"state": ["IDLE", "PLANNED"]}]
TAKES_NONE += [{"state": ["MIXED"]}, {"partitions": ["other"]}]


def test_a_job_is_stuck_that_waits_its_turn_while_a_node_that_fits_is_idle() -> None:
    cases: list[tuple[dict[str, str], dict[str, Any], int]] = [(job, {}, 3) for job in FITS]
    cases += [*((job, {}, 0) for job in WAITS_FOR_ELSE), *(({}, node, 0) for node in TAKES_NONE)]
    for job, node, stuck in cases:
        figures = Figures()
        put_stuck(figures, ["main"], jobs(*[{**job, "JobID": "7"}] * 3), [read_node({**IDLE, **node})], NOW)
        assert f'slurmstack_queue_stuck_jobs{{partition="main"}} {stuck}\n' in figures.text(), (job, node)


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
def test_it_is_told_who_drained_a_node_and_for_what(reason: str, by: str, kind: str) -> None:
    figures = Figures()
    put_drained(figures, [drained(reason, by)], by_person=True)
    told = f'slurmstack_node_drained{{node="n",reason_kind="{kind}",by="{by}"}} 1'
    assert figures.text().splitlines()[2:] == ([told] if kind else [])


def test_nodes_of_elastic_pools_are_targets_while_they_are_up_and_no_alarm_while_they_are_off() -> None:
    answers = {**ANSWERS, "nodes": ELASTIC}
    rounds = rounds_of(answers)
    rounds.round()
    shown = set(rounds.text().splitlines())
    assert {f"slurmstack_elastic_pool_{name} 1" for name in ('paused{pool="far"}', 'set_aside{pool="gpu"}')} <= shown
    assert 'slurmstack_elastic_pool_set_aside{pool="far"} 0' in shown
    assert not [line for line in shown if line.startswith(("slurmstack_node_drained{", "slurmstack_node_down{"))]
    answers["scheduler"] = ValueError("slurmctld does not answer")
    rounds.round()
    assert rounds.elastic == ["gpu-0"]


def test_partitions_that_carry_times_of_elastic_pools_have_no_figures(tmp_path: Path) -> None:
    (tmp_path / "elastic.pools").write_text("gpu\n")
    answer = json.dumps({"partitions": [{"name": name} for name in ("main", "elastic-gpu", "elastic-of-a-user")]})
    sources = Sources(runner=lambda *_, **__: Result(code=0, stdout=answer), mounted=tmp_path)
    assert sources.partitions() == ["main", "elastic-of-a-user"]
