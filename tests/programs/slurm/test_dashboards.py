"""Dashboards: each query is PromQL, and asks for what something gives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from images.exporter.names import OURS, SLURMS
from images.worker.job_metrics import SERIES, text
from slurm.dashboards.boards import BOARDS, JOBS
from tests import panels
from tests.stacks import ROOT
from tests.unit.slurm.pages import MODES, asked, config

DCGM = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP"}
"""Of etc/default-counters.csv of NVIDIA's dcgm-exporter, what the dashboards use."""


@pytest.mark.parametrize("mode", MODES)
def test_promtool_takes_each_query(promtool: str, tmp_path: Path, mode: str) -> None:
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(asked(config(mode)))]
    assert len(rules) > 45
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    command = [promtool, "check", "rules", "rules.yml"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout


JOB = {**dict.fromkeys(SERIES, 1.0), "memory_total_bytes": 2.0, "uid": 1000}


def test_panels_of_jobs_have_data_with_what_workers_say(promtool: str, tmp_path: Path) -> None:
    """A job on two nodes, and one that no limit holds: only the first has a share of it."""
    free = {**JOB, "memory_total_bytes": -1.0}
    given = panels.series({"a-0:9306": text({"1": JOB, "2": free}), "a-1:9306": text({"1": JOB})})
    queries = panels.queries(name.partition("{")[0] for name in given)
    assert len(queries) == len([query for panel in JOBS.panels() for query in panel.queries])
    assert panels.empty(promtool, tmp_path, given, queries) == ""
    (shares,) = [query for query in queries if "cgroup_memory_total_bytes" in query]
    assert panels.empty(promtool, tmp_path, given, [f"count({shares}) == 1"]) == ""


def given_by_us() -> set[str]:
    """Names that the exporter and the workers have."""
    of_jobs = {line.split("{")[0] for line in text({"1": JOB}).splitlines() if not line.startswith("#")}
    return {*SLURMS, *OURS, *of_jobs}


def is_of_checks(name: str) -> bool:
    """Whether health checks give it: their figures have names in the checks' own code."""
    bare = name.removeprefix("slurmstack_health_")
    found = [*(ROOT / "images/health/checks").glob("*.py"), ROOT / "images/health/periodic.py"]
    texts = [path.read_text(encoding="utf-8") for path in found]
    return bare != name and any(f"'{bare}{{{{" in text or f'"{bare}"' in text for text in texts)


def test_each_figure_that_is_asked_for_is_given_by_somebody() -> None:
    for board in BOARDS:
        for panel in board.panels():
            for name in {name for query in panel.queries for name in query.figures}:
                if name.startswith("kube_"):
                    known = panel.needs == "kube_state"  # each has data in tests/e2e/test_rest.py
                elif name.startswith("DCGM_"):
                    known = panel.needs == "dcgm" and name in DCGM
                else:
                    known = name in given_by_us() or is_of_checks(name)
                assert known, f"{board.name}: {panel.title}: {name}"
