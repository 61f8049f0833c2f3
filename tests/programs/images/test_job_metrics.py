"""Figures of jobs, as Prometheus itself finds them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from images.worker.job_metrics import text

_RSS = "cgroup_memory_rss_bytes{%s}"
ASKED = {
    "max_over_time(cgroup_memory_total_bytes{%s}[60s])": 536870912,
    f"max_over_time((({_RSS}+cgroup_memory_shmem_bytes{{%s}}) or 1*{_RSS})[60s:])": 134217728 + 1024,
    "max_over_time(cgroup_cpu_total_seconds{%s}[60s])": 3.5,
    "max_over_time(cgroup_cpus{%s}[60s])": 3,
}
"""What jobstats asks Prometheus for, by its names and labels, and what it must be told of the job."""
JOB = {
    "cpu_total_seconds": 3.5, "cpus": 3, "memory_rss_bytes": 134217728, "memory_shmem_bytes": 1024,
    "memory_total_bytes": 536870912, "uid": 1000,
}  # fmt: skip

LABELS = "cluster='slurm',jobid='17',step='',task=''"


def test_prometheus_finds_what_jobstats_asks_for_and_its_node(promtool: str, tmp_path: Path) -> None:
    """With the two labels that the scrape configuration adds (docs/usage.md)."""
    added = 'cluster="slurm",instance="default-0:9306"'
    lines = [line for line in text({"17": JOB}).splitlines() if not line.startswith("#")]
    series = [line.replace('"17"', f'"17",{added}', 1).rpartition(" ") for line in lines]
    told = {asked: {"labels": f'{{{added},jobid="17"}}', "value": value} for asked, value in ASKED.items()}
    test = {
        "interval": "30s",
        "input_series": [{"series": name, "values": f"{value}x9"} for name, _, value in series],
        "promql_expr_test": [
            {"expr": asked.replace("%s", LABELS), "eval_time": "2m", "exp_samples": [sample]}
            for asked, sample in told.items()
        ],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"evaluation_interval": "30s", "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
