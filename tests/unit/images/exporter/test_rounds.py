"""What a round says of what it could read, and of what it could not."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result
from images.common.slurm_node import ROLLS
from images.exporter.own_figures import Figures, put_drained, put_stuck
from images.exporter.records import GROUPS, NAME_LENGTH, OTHERS, jobs_of, node_of
from images.exporter.rounds import OLD_SECONDS, Rounds, Wanted
from images.exporter.sources import JOBS, MUNGE, NODES, SLURMDBD, Sources
from slurm.prometheus import LONGEST_VALUE
from tests.unit.images.exporter.rows import row

NOW = 1_800_000_000.0
NOWHERE = "http://127.0.0.1:1"


class Slurm:
    """Answers of Slurm's commands, and how often each was asked."""

    def __init__(self, **records: Sequence[Mapping[str, Any]]) -> None:
        self.records: dict[str, Sequence[Mapping[str, Any]]] = {"jobs": [], "nodes": [], "partitions": [], **records}
        self.asked: list[tuple[str, ...]] = []
        self.is_down = False

    def __call__(self, argv: Sequence[str], *, timeout: float = 0, env: Mapping[str, str] | None = None) -> Result:
        del timeout
        assert env is not None
        self.asked.append(tuple(argv))
        if tuple(argv) == MUNGE:
            return Result(code=0)
        if self.is_down:
            return Result(code=1, stderr="Unable to contact slurm controller")
        if argv[0] == "sdiag":
            return Result(code=0, stdout=json.dumps({"statistics": {"jobs_submitted": 7}}))
        if tuple(argv) == SLURMDBD:
            return Result(code=0, stdout="slurmdbd(primary) at slurmdbd-0 is UP\n")
        if tuple(argv[:-1]) == JOBS:
            columns = re.findall(r"([\w-]+):\d(~.+?[~!])(?:,|$)", argv[-1].removeprefix("--Format="))
            rows = ("".join(job[field] + end for field, end in columns) for job in self.records["jobs"])
            return Result(code=0, stdout="".join(f"{row}\n" for row in rows))
        kind = "nodes" if tuple(argv) == NODES else "partitions"
        return Result(code=0, stdout=json.dumps({kind: self.records[kind]}))


def rounds_of(slurm: Slurm, clock: list[float], logged: list[str] | None = None, **wanted: Any) -> Rounds:
    given = Wanted(**{"slurms_own": True, "by_person": True, "accounting": False, **wanted})
    log = [] if logged is None else logged
    return Rounds(given, Sources(runner=slurm, agent_url=NOWHERE), log.append, now=lambda: clock[0])


NUMBERS = itertools.count(100)


def pending(**fields: str) -> dict[str, str]:
    return row(**{"JobID": str(next(NUMBERS)), "EligibleTime": f"{NOW - 100:.0f}", **fields})


def test_scrapes_ask_slurm_nothing_and_a_round_asks_each_thing_once() -> None:
    slurm = Slurm()
    rounds = rounds_of(slurm, [NOW], accounting=True)
    rounds.round()
    for _ in range(5):
        rounds.text()
    assert len(slurm.asked) == len(set(slurm.asked)) == 6


def test_whoever_makes_up_accounts_is_among_the_others_and_nobody_is_left_out() -> None:
    made_up = [pending(Account=f"{number:04}" + "\N{EURO SIGN}" * 1020) for number in range(3 * GROUPS)]
    slurm = Slurm(jobs=[*made_up, pending(), pending()])
    rounds = rounds_of(slurm, [NOW])
    rounds.round()
    text = rounds.text()
    for figure, labels in (
        ("slurm_account_jobs", ""),
        ("slurm_account_jobs_pending", ""),
        ("slurmstack_jobs_waiting", 'partition="main",'),
    ):
        found = dict(re.findall(rf'^{figure}{{{labels}account="(.*)"}} (\d+)$', text, re.MULTILINE))
        assert len(found) == GROUPS + 1
        assert sum(map(int, found.values())) == 3 * GROUPS + 2
        assert (found["physics"], found[OTHERS]) == ("2", str(2 * GROUPS + 1))
        assert NAME_LENGTH - 3 < max(len(name.encode()) for name in found) <= NAME_LENGTH <= LONGEST_VALUE
    slurm.records["jobs"] = [*reversed(slurm.records["jobs"])]
    rounds.round()
    assert names_in(rounds.text()) == names_in(text)


def names_in(text: str) -> set[str]:
    """Every series, without its value."""
    return {line.rpartition(" ")[0] for line in text.splitlines()}


def test_a_round_that_never_ends_is_not_told_for_ever() -> None:
    clock = [NOW]
    rounds = rounds_of(Slurm(jobs=[pending()]), clock)
    rounds.round()
    clock[0] = NOW + OLD_SECONDS + 1
    assert "slurm_jobs_pending" not in rounds.text()
    assert 'slurmstack_exporter_up{source="jobs"} 0' in rounds.text()


STRANGE: dict[str, dict[str, str]] = {"jobs": {"tres-alloc": "gres/gpu=many"}, "partitions": {"tres-alloc": "cpu=many"}}
"""Source that is not up then -> a job that nobody has thought of."""


@pytest.mark.parametrize("source", STRANGE)
def test_a_strange_record_takes_away_no_figure_of_another_source(source: str) -> None:
    slurm = Slurm(jobs=[pending(**STRANGE[source])], nodes=[IDLE], partitions=[{"name": "main"}])
    clock, logged = [NOW], list[str]()
    rounds = rounds_of(slurm, clock, logged)
    for _ in range(3):
        rounds.round()
    text = rounds.text()
    assert f'slurmstack_exporter_up{{source="{source}"}} 0' in text
    assert f'slurmstack_exporter_collected_timestamp_seconds{{source="{source}"}}' not in text
    for told in ('slurmstack_exporter_up{source="nodes"} 1', "slurm_nodes_idle 1", "slurmstack_slurmctld_up 1"):
        assert told in text
    assert len([line for line in logged if line.startswith(f"{source}:")]) == 1
    slurm.records["jobs"] = []
    rounds.round()
    assert f'slurmstack_exporter_up{{source="{source}"}} 1' in rounds.text()
    assert logged[-1] == f"{source}: can be read again"


IDLE = {"name": "n", "state": ["IDLE"], "partitions": ["main"], "cpus": 4, "effective_cpus": 4, "real_memory": 1000}


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
        figures, jobs = Figures(), jobs_of([pending(**{**job, "JobID": "7"})] * 3, {})
        put_stuck(figures, ["main"], jobs, [node_of({**IDLE, **node})], NOW)
        assert list(figures.families["queue_stuck_jobs"].series.values()) == [stuck], (job, node)


def test_it_is_told_who_drained_a_node_and_for_what_and_of_private_data_no_person() -> None:
    for reason, by, kind in [
        ("health/dns [node]: no answer", "root", "health"),
        ("Prolog error", "slurm", "prolog"),
        ("Kill task failed", "slurm", "other"),
        ("slurmstack: pod leaving", "root", "other"),
        ("prolog is to be changed", "alice", "administrator"),
    ]:
        drained = {"name": "n", "state": ["IDLE", "DRAIN"], "reason": reason, "reason_set_by_user": by}
        for by_person in (True, False):
            figures = Figures()
            put_drained(figures, [node_of(drained)], by_person=by_person)
            check = [("check", "dns")] if kind == "health" else []
            told = [("by", by)] if by_person or by != "alice" else []
            series = [(("node", "n"), ("reason_kind", kind), *check, *told)]
            assert list(figures.families["node_drained"].series) == series


def test_a_node_that_gets_a_new_pod_is_not_told_as_drained() -> None:
    figures = Figures()
    node = node_of({"name": "n", "state": ["ALLOCATED", "DRAIN"], "reason": ROLLS, "reason_set_by_user": "root"})
    put_drained(figures, [node], by_person=True)
    assert "node_drained" not in figures.families


def elastic_node(name: str, *states: str, reason: str = "") -> dict[str, Any]:
    return {"name": name, "state": [*states, "CLOUD"], "reason": reason, "reason_set_by_user": "root"}


def test_nodes_of_elastic_pools_are_targets_while_they_are_up_and_no_alarm_while_they_are_off() -> None:
    aside = "slurmstack/elastic: set aside after 10 starts in vain; resume its nodes when there is capacity"
    paused = "slurmstack/elastic: no capacity, 1 in vain, again at 2026-11-26T07:38:31Z"
    nodes = [
        elastic_node("gpu-0", "MIXED"),
        elastic_node("gpu-1", "IDLE", "DRAIN", "POWERED_DOWN", reason=aside),
        elastic_node("gpu-2", "MIXED", "POWERING_UP"),
        elastic_node("far-0", "IDLE", "DRAIN", "POWERED_DOWN", reason=paused),
        elastic_node("far-1", "DOWN", "POWERED_DOWN", reason="ResumeTimeout reached"),
        {"name": "cpu-0", "state": ["IDLE"]},
    ]
    slurm, clock = Slurm(nodes=nodes), [NOW]
    rounds = rounds_of(slurm, clock)
    rounds.round()
    assert rounds.elastic() == ["gpu-0"]
    shown = set(rounds.text().splitlines())
    assert {
        'slurmstack_elastic_pool_paused{pool="far"} 1',
        'slurmstack_elastic_pool_set_aside{pool="far"} 0',
        'slurmstack_elastic_pool_set_aside{pool="gpu"} 1',
    } <= shown
    assert not [line for line in shown if line.startswith(("slurmstack_node_drained{", "slurmstack_node_down{"))]
    slurm.is_down = True
    rounds.round()
    assert rounds.elastic() == ["gpu-0"]


def test_partitions_that_carry_times_of_elastic_pools_have_no_figures(tmp_path: Path) -> None:
    (tmp_path / "elastic.pools").write_text("gpu\n")
    slurm = Slurm(partitions=[{"name": name} for name in ("main", "elastic-gpu", "elastic-of-a-user")])
    found = Sources(runner=slurm, agent_url=NOWHERE, mounted=tmp_path).partitions()
    assert [partition.name for partition in found] == ["main", "elastic-of-a-user"]
