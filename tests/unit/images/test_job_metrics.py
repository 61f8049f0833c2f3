"""Figures of jobs from cgroups, and what is answered at the port."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from images.worker.job_metrics import Figures, answer, read_jobs, text

GROUP = {
    "cpu.stat": "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\n",
    "memory.stat": "anon 134217728\nfile 4096\nshmem 1024\nswapcached 0\n",
    "memory.events": "low 0\noom 2\noom_kill 1\n",
    "memory.current": "134300000\n",
    "memory.max": "536870912\n",
    "cpuset.cpus.effective": "0-1,4\n",
}
"""Files of a job's cgroup as the kernel writes them."""


def read(tmp_path: Path, **files: str) -> dict[str, Figures]:
    """What is read of a node with the job 17 of user 1000, and with what is no job."""
    scope = tmp_path / "system.slice/default-0_slurmstepd.scope"
    group = scope / "job_17"
    (group / "step_0/user/task_0").mkdir(parents=True)
    (scope / "system").mkdir()
    for name, content in {**GROUP, **{name.replace("_", ".", 1): said for name, said in files.items()}}.items():
        (group / name).write_text(content)
    (group / "step_0/user/task_0/cgroup.procs").write_text("4242\n4243\n")
    (tmp_path / "proc/4242").mkdir(parents=True)
    (tmp_path / "proc/4242/status").write_text("Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    return again(tmp_path)


def again(tmp_path: Path) -> dict[str, Figures]:
    return read_jobs("default-0", tmp_path, tmp_path / "proc")


def test_a_job_s_cgroup_is_told_as_the_cgroup_exporter_tells_it(tmp_path: Path) -> None:
    lines = [line for line in text(read(tmp_path)).splitlines() if not line.startswith("#")]
    labels = '{jobid="17",step="",task=""}'
    assert lines == [
        f"cgroup_cpu_total_seconds{labels} 3.5",
        f"cgroup_cpus{labels} 3",
        f"cgroup_memory_rss_bytes{labels} 134217728",
        f"cgroup_memory_shmem_bytes{labels} 1024",
        f"cgroup_memory_total_bytes{labels} 536870912",
        f"cgroup_memory_fail_count{labels} 2",
        'cgroup_uid{jobid="17"} 1000',
    ]


def test_a_node_without_cgroups_tells_of_its_health_alone(tmp_path: Path) -> None:
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text == ""
    (tmp_path / "metrics.prom").write_text("slurmstack_health_last_run_timestamp_seconds 1\n")
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text.endswith("_seconds 1\n")
    assert answer("default-0", "/", tmp_path / "metrics.prom").status == HTTPStatus.NOT_FOUND
