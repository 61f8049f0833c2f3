"""What the watcher reads from Slurm.

The data were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`), not recorded.
"""

from __future__ import annotations

import json

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.common.health.slurm import Record, Slurm, SlurmError, parse_nodes
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.tables import table

IDLE = Record(name="w-0", states=frozenset({"IDLE"}), address="w-0")
THEN = 1_795_000_000


@table(
    "field, values, read",
    {
        "a time is plain or optional": (
            "reason_changed_at",
            [THEN, float(THEN), {"set": True, "infinite": False, "number": THEN}],
            {"reason_at": THEN},
        ),
        "no time": ("reason_changed_at", [0, None, "yesterday", True, {}], {"reason_at": None}),
        "for ever": ("reason_changed_at", [{"set": True, "infinite": True, "number": 5}], {"reason_at": None}),
        "a state may be a text": ("state", ["MIXED+DRAIN"], {"states": {"MIXED", "DRAIN"}}),
        "no comment": ("comment", [None, 7, ""], {"comment": ""}),
    },
)
def test_what_is_missing_is_empty(field: str, values: list[object], read: dict[str, object]) -> None:
    for value in values:
        given = {"name": "w-0", "state": ["IDLE"], field: value}
        (record,) = parse_nodes(json.dumps({"nodes": [given]}))
        assert vars(record) == vars(IDLE) | read


def test_garbage_or_no_answer_is_an_error_and_never_an_empty_cluster() -> None:
    for text in ("no json", "[]", "{}", '{"nodes": ["w-0"]}', '{"nodes": null}'):
        with pytest.raises(SlurmError):
            parse_nodes(text)
    for code in (1, TIMED_OUT, NO_PROGRAM):
        slurm = Slurm(runner=FakeRunner({"": Result(code=code, stdout='{"nodes": []}', stderr="Unable to contact")}))
        for question in (slurm.nodes, lambda: slurm.node("w-0"), lambda: slurm.jobs_of("w-0"), slurm.reservations):  # noqa: B023
            with pytest.raises(SlurmError, match="Unable to contact"):
                question()


def test_the_jobs_of_a_node_are_those_that_are_ending_too() -> None:
    runner = FakeRunner({"squeue": Result(code=0, stdout=" \n 17\nwhat?\n")})
    assert Slurm(runner=runner).jobs_of("w-0") == ["17", "what?"]
    states = "running,suspended,completing,configuring,stopped,signaling,stage_out"
    assert runner.commands == [f"squeue --noheader --states={states} --nodelist=w-0 --format=%A"]


def test_gpus_are_counted() -> None:
    for gres, gpus in [
        (None, 0), ("gpu:8", 8), ("gpu:h100:8(S:0-1),shard:h100:32(S:0-1)", 8), ("gpu:a:1,gpu:b:2", 3), ("nic:4", 0),
        ("gpu:1g.10gb:7(S:0),gpu:3g.40gb:2", 0),
    ]:  # fmt: skip
        shown = json.dumps({"nodes": [{"name": "a", "state": ["IDLE"], "gres": gres}]})
        assert parse_nodes(shown)[0].gpus == gpus, gres
