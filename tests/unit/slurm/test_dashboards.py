"""Dashboards: each query is PromQL, asks for what something gives, and reaches Grafana as Grafana reads it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from config import load_config
from config.cluster import ClusterConfig
from images.exporter.own_figures import _HELP
from images.exporter.slurm_figures import names
from images.worker.job_metrics.figures import Figures, text
from slurm.dashboards.boards import BOARDS, JOBS, MACHINE_INFO
from slurm.dashboards.grafana import dashboard_files
from slurm.dashboards.panels import NEEDS, RATE, Query
from tests import panels, stacks
from tests.stacks import ROOT, with_change

DCGM = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP"}
"""Of etc/default-counters.csv of NVIDIA's dcgm-exporter, what the dashboards use."""

MODES: dict[str, dict[str, Any]] = {
    "install": {"install": True, "dashboards": True},
    "existing": {"existing": {"namespace": "monitoring"}},
}


def config(mode: str = "install", namespace: str = "slurm") -> ClusterConfig:
    sections = with_change(stacks.existing(), "monitoring", MODES[mode])
    return load_config(with_change(sections, "cluster", {"namespace": namespace}))


def pages(given: ClusterConfig) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in dashboard_files(given).items()}


def asked(given: ClusterConfig) -> Iterator[str]:
    """All queries, with what Grafana puts into them."""
    for page in pages(given).values():
        for panel in page["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"].replace(RATE, "2m").replace("$node", ".*").replace("$job", ".*")


@pytest.mark.parametrize("mode", MODES)
def test_promtool_takes_each_query(promtool: str, tmp_path: Path, mode: str) -> None:
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(asked(config(mode)))]
    assert len(rules) > 45
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    command = [promtool, "check", "rules", "rules.yml"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout


JOB = Figures(
    user_seconds=1, system_seconds=1, cpus=1, rss=1, cache=1, shmem=1, used=1, total=2, failures=0, uid=1000
)  # fmt: skip


def test_panels_of_jobs_have_data_with_what_workers_say(promtool: str, tmp_path: Path) -> None:
    """A job on two nodes, and one that no limit holds: only the first has a share of it."""
    free = replace(JOB, total=-1)
    given = panels.series({"a-0:9306": text({"1": JOB, "2": free}), "a-1:9306": text({"1": JOB})})
    queries = panels.queries(name.partition("{")[0] for name in given)
    assert len(queries) == len([query for panel in JOBS.panels() for query in panel.queries])
    assert panels.empty(promtool, tmp_path, given, queries) == ""
    (shares,) = [query for query in queries if "cgroup_memory_total_bytes" in query]
    assert panels.empty(promtool, tmp_path, given, [f"count({shares}) == 1"]) == ""


def given_by_us() -> set[str]:
    """Names that the exporter and the workers have."""
    of_jobs = {line.split("{")[0] for line in text({"1": JOB}).splitlines() if not line.startswith("#")}
    return {*names(), *(f"slurmstack_{name}" for name in _HELP), *of_jobs}


def is_of_checks(name: str) -> bool:
    """Whether health checks give it: their figures have names in the checks' own code."""
    bare = name.removeprefix("slurmstack_health_")
    found = [*(ROOT / "images/health/checks").glob("*.py"), ROOT / "images/health/metrics.py"]
    texts = [path.read_text(encoding="utf-8") for path in found]
    return bare != name and any(f"'{bare}{{{{" in text or f'"{bare}"' in text for text in texts)


def test_each_figure_that_is_asked_for_is_given_by_somebody(node_exporter: str) -> None:
    """What a node exporter gives of any machine is seen where it runs (tests/graph/test_node_exporter.py)."""
    machines = Path(node_exporter).read_bytes()
    for board in BOARDS:
        for panel in board.panels():
            for name in {name for query in panel.queries for name in query.figures}:
                if name.startswith("node_infiniband_"):
                    known = panel.needs == "infiniband" and name.removeprefix("node_infiniband_").encode() in machines
                elif name.startswith("node_"):
                    known = panel.needs == "machines"
                elif name.startswith("kube_"):
                    known = panel.needs == "kube_state"  # each has data in tests/e2e/test_rest.py
                elif name.startswith("DCGM_"):
                    known = panel.needs == "dcgm" and name in DCGM
                else:
                    known = name in given_by_us() or is_of_checks(name) or name == MACHINE_INFO
                assert known, f"{board.name}: {panel.title}: {name}"


def test_the_figures_of_a_query_are_found_in_it() -> None:
    query = Query('sum by (a) (rate(b_total{c="d e"}[5m])) / on (f) group_left (g) (h > 0.1) or label_replace(i, "j")')
    assert query.figures == {"b_total", "h", "i"}


def test_what_only_gpus_give_is_marked_so() -> None:
    for board in BOARDS:
        for panel in board.panels():
            of_gpus = any("gpu" in name or "DCGM" in name for query in panel.queries for name in query.figures)
            assert of_gpus == (panel.needs in {"gpus", "dcgm"}), panel.title


@pytest.mark.parametrize("mode", MODES)
def test_grafana_s_own_types_read_each_page_and_write_the_same(mode: str) -> None:
    for page in pages(config(mode)).values():
        again = json.loads(JSONEncoder().encode(Dashboard.from_json(page)))
        assert again == page


def test_panels_have_numbers_a_place_of_their_own_and_the_page_s_prometheus() -> None:
    for page in pages(config()).values():
        panels = page["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken = {
            (x, y)
            for at in (panel["gridPos"] for panel in panels)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert len(taken) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in panels)
        assert max(x for x, _ in taken) < 24
        targets = [target for panel in panels for target in panel.get("targets", ())]
        assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}


def test_what_may_be_empty_says_why() -> None:
    described = {
        panel["title"]: panel.get("description", "") for page in pages(config()).values() for panel in page["panels"]
    }
    assert described["GPUs in use"] == NEEDS["gpus"]
    assert "Empty if none waits" in described["Longest, by partition"]


def test_two_clusters_in_one_prometheus_and_one_grafana_are_apart() -> None:
    one, other = pages(config("existing", "one")), pages(config("existing", "a" * 63))
    assert not one.keys() & other.keys()
    assert not {page["uid"] for page in one.values()} & {page["uid"] for page in other.values()}
    assert all(len(page["uid"]) <= 40 for page in other.values())
    ours = [expr for expr in asked(config("existing", "one")) if re.search("slurm_|cgroup_|kube_", expr)]
    assert ours
    assert all('namespace="one"' in expr for expr in ours)
    assert 'label_values(slurm_node_cpus{namespace="one"}, node)' in json.dumps(one).replace('\\"', '"')
    assert not [expr for expr in asked(config()) if "namespace" in expr]
