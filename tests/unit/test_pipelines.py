"""examples/ci: what a pipeline may do and to whom it gives rights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stacks import ROOT

CI = ROOT / "examples" / "ci"
SCRIPTS = sorted((CI / "scripts").glob("*.sh"))
WORKFLOWS = sorted((CI / "github").glob("*.yml"))
GITLAB = CI / "gitlab" / ".gitlab-ci.yml"
FILES = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)


def workflow(file: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def steps(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each job with each of its steps."""
    for job in workflow(file)["jobs"].values():
        for step in job["steps"]:
            yield job, step


def gitlab() -> dict[str, dict[str, Any]]:
    """The jobs of the GitLab pipeline."""
    document = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))
    return {name: part for name, part in document.items() if isinstance(part, dict) and "script" in part}


@FILES
def test_actions_are_pinned_to_commits_with_their_versions_beside(file: Path) -> None:
    used = re.findall(r"uses: *(.*)", file.read_text(encoding="utf-8"))
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used), used


@FILES
def test_a_pipeline_has_no_rights_but_those_that_a_job_names(file: Path) -> None:
    assert workflow(file)["permissions"] == {}
    assert "pull_request_target" not in workflow(file)[True]  # YAML takes `on` for a yes
    for job, step in steps(file):
        assert job["permissions"].get("contents") == "read"
        if "id-token" in job["permissions"]:
            assert job["environment"], "who may log in to the cloud is decided by the environment's rules"
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@FILES
def test_nothing_that_a_pull_request_chooses_gets_into_a_command_line(file: Path) -> None:
    assert not [step["run"] for _, step in steps(file) if "${{" in step.get("run", "")]


def test_a_fork_gets_the_preview_that_needs_nothing_secret_and_no_other() -> None:
    jobs = workflow(CI / "github" / "preview.yml")["jobs"]
    assert jobs["files"]["permissions"] == {"contents": "read"}
    assert "environment" not in jobs["files"]
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    assert [name for name, job in jobs.items() if job.get("if") != own] == ["files"]
    asked = {name: job for name, job in gitlab().items() if "id_tokens" in job}
    of_requests = [job["rules"][0]["if"] for job in asked.values() if "merge_request" in job["rules"][0]["if"]]
    assert of_requests
    assert all("$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule for rule in of_requests)


def test_two_applies_never_run_at_once_and_none_is_cut_short() -> None:
    groups = {file.name: workflow(file)["concurrency"] for file in WORKFLOWS}
    assert groups["apply.yml"] == {"group": "slurm-apply", "cancel-in-progress": False}
    assert all(group["group"] != "slurm-apply" for name, group in groups.items() if name != "apply.yml")
    assert (gitlab()["apply"]["resource_group"], gitlab()["apply"]["interruptible"]) == ("slurm-apply", False)


def test_each_step_is_a_script_that_is_there() -> None:
    texts = [step["run"] for file in WORKFLOWS for _, step in steps(file) if "run" in step]
    texts += [line for job in gitlab().values() for line in job["script"]]
    named = {name for text in texts for name in re.findall(r"examples/ci/scripts/[\w-]+\.sh", text)}
    assert {ROOT / name for name in named} == set(SCRIPTS)
    assert all(os.access(script, os.X_OK) for script in SCRIPTS)
    rest = [re.sub(r"(source )?examples/ci/scripts/[\w-]+\.sh( [\w$\".]+)*", "", text) for text in texts]
    allowed = {"make venv", 'cat comment.md >>"$GITHUB_STEP_SUMMARY"', '| tee -a "$GITHUB_STEP_SUMMARY"'}
    assert {line.strip() for text in rest for line in text.splitlines()} <= {"", "bash -c ' && '", *allowed}
