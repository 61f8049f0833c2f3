"""Figures of jobs from cgroups, and how the server treats who asks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from images.worker.job_metrics.cgroups import JobCgroups
from images.worker.job_metrics.figures import text

GROUP = {
    "cpu.stat": "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\n",
    "memory.stat": "anon 134217728\nfile 4096\nshmem 1024\nswapcached 0\n",
    "memory.events": "low 0\noom 2\noom_kill 1\n",
    "memory.current": "134300000\n",
    "memory.max": "536870912\n",
    "cpuset.cpus.effective": "0-1,4\n",
}
"""Files of a job's cgroup as the kernel writes them."""


def node(tmp_path: Path, **files: str) -> JobCgroups:
    """A node with the job 17 of user 1000, and with what is no job."""
    scope = tmp_path / "system.slice/default-0_slurmstepd.scope"
    group = scope / "job_17"
    (group / "step_0/user/task_0").mkdir(parents=True)
    (scope / "system").mkdir()
    for name, content in {**GROUP, **{name.replace("_", ".", 1): said for name, said in files.items()}}.items():
        (group / name).write_text(content)
    (group / "step_0/user/task_0/cgroup.procs").write_text("4242\n4243\n")
    (tmp_path / "proc/4242").mkdir(parents=True)
    (tmp_path / "proc/4242/status").write_text("Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    return JobCgroups("default-0", tmp_path, tmp_path / "proc")


_RSS = "cgroup_memory_rss_bytes{%s}"
ASKED = {
    "max_over_time(cgroup_memory_total_bytes{%s}[60s])": 536870912,
    f"max_over_time((({_RSS}+cgroup_memory_shmem_bytes{{%s}}) or 1*{_RSS})[60s:])": 134217728 + 1024,
    "max_over_time(cgroup_cpu_total_seconds{%s}[60s])": 3.5,
    "max_over_time(cgroup_cpus{%s}[60s])": 3,
}
"""What jobstats asks Prometheus for, by its names and labels, and what it must be told of the job."""
LABELS = "cluster='slurm',jobid='17',step='',task=''"


def test_prometheus_finds_what_jobstats_asks_for_and_its_node(promtool: str, tmp_path: Path) -> None:
    """With the two labels that the scrape configuration adds (docs/job-metrics.md)."""
    added = 'cluster="slurm",instance="default-0:9306"'
    lines = [line for line in text(node(tmp_path).read()).splitlines() if not line.startswith("#")]
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
