"""A cluster that an older commit made is taken over: nothing is lost, and no set of pods or machines made anew."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from cli.change.effects import refused
from cli.change.engine_plan import EnginePlan, against_state
from cli.program.recording import manifests
from config import ConfigError, load_config
from config.load import PROJECT
from tests.graph.older_graphs import OLDER
from tests.graph.state import stack_of
from tests.recordings import record


def graphs(pattern: str) -> pytest.MarkDecorator:
    files = sorted(OLDER.glob(pattern))
    ids = [f"{file.parent.name}-{file.stem}" for file in files]
    return pytest.mark.parametrize("older", [json.loads(file.read_text()) for file in files], ids=ids)


def has_done_its_work(type_: str, name: str) -> bool:
    """Whether an object may be made anew under another name: jobs, and what one of them reads."""
    return type_.endswith(":Job") or name in {"slurm-users-list", "slurm-policy-document"}


def of_operators(type_: str) -> bool:
    """Whether it was made for `cloud.gpu_stack: operators`, which is gone, and whose message says what that costs."""
    return type_.endswith((":Release", ":NicClusterPolicy"))


def left(sections: Any) -> Any:
    """What remains of them when keys are removed that are gone since, as the messages about these say."""
    try:
        load_config(sections)
    except ConfigError as error:
        left = copy.deepcopy(sections)
        for problem in error.problems:
            assert "is gone" in problem.message or "is not a known" in problem.message, problem
            *above, last = problem.where.removeprefix(f"{PROJECT}:").split(".")
            functools.reduce(dict.__getitem__, above, left).pop(last)
        return left
    return sections


def taken_over(directory: Path, older: dict[str, Any]) -> EnginePlan:
    resources = older["state"]["deployment"]["resources"]
    # As the message about `cloud.backups` says: a bucket that was made here stays.
    kept = [item for item in resources if not (item["type"].startswith("nebius:") and item["urn"].endswith("-backups"))]
    return against_state(stack_of(directory, left(older["sections"])), {"deployment": {"resources": kept}})


@graphs("*/*.json")
def test_the_engine_makes_nothing_anew_and_deletes_nothing_but_jobs_that_have_done_their_work(
    older: dict[str, Any], tmp_path: Path
) -> None:
    found = taken_over(tmp_path, older)
    assert not refused(found.effects)
    lost = {
        (change.action, change.resource.type.rsplit(":", 1)[1], change.resource.name)
        for change in found.changes
        if change.action in {"replace", "delete"}
        and not has_done_its_work(change.resource.type, change.resource.name)
        and not of_operators(change.resource.type)
    }
    assert not lost


@graphs("*/[de]*.json")
def test_kubectl_finds_every_object_again_by_its_name(older: dict[str, Any]) -> None:
    before = {
        (item["type"].rsplit(":", 1)[1], item["inputs"]["metadata"]["name"])
        for item in older["state"]["deployment"]["resources"]
        if item["type"].startswith("kubernetes:")
        and not has_done_its_work(item["type"], item["urn"].rsplit("::", 1)[1])
    }
    after = {(item.kind, item.name) for item in manifests(record(left(older["sections"]), stack="test"))}
    assert before <= after


def test_there_is_an_older_graph_of_each_kind_of_stack() -> None:
    assert {path.stem for path in OLDER.glob("*/*.json")} >= {"dev", "existing", "nebius", "nebius-full"}
