"""Figures of jobs from cgroups, and how the server treats who asks."""

from __future__ import annotations

import contextlib
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from images.worker.job_metrics.cgroups import JobCgroups
from images.worker.job_metrics.figures import text
from images.worker.job_metrics.processes import JobProcesses
from images.worker.job_metrics.server import Figures, Slow, answer, attend, is_of_this_pod

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


def test_a_job_s_cgroup_is_told_as_the_cgroup_exporter_tells_it(tmp_path: Path) -> None:
    cgroups = node(tmp_path)
    assert cgroups.are_there()
    lines = [line for line in text(cgroups.read()).splitlines() if not line.startswith("#")]
    labels = '{jobid="17",step="",task=""}'
    assert lines == [
        f"cgroup_cpu_user_seconds{labels} 3",
        f"cgroup_cpu_system_seconds{labels} 0.5",
        f"cgroup_cpu_total_seconds{labels} 3.5",
        f"cgroup_cpus{labels} 3",
        f"cgroup_memory_rss_bytes{labels} 134217728",
        f"cgroup_memory_cache_bytes{labels} 4096",
        f"cgroup_memory_shmem_bytes{labels} 1024",
        f"cgroup_memory_used_bytes{labels} 134300000",
        f"cgroup_memory_total_bytes{labels} 536870912",
        f"cgroup_memory_fail_count{labels} 2",
        f"cgroup_memsw_used_bytes{labels} 0",
        f"cgroup_memsw_total_bytes{labels} 0",
        f"cgroup_memsw_fail_count{labels} 0",
        'cgroup_uid{jobid="17"} 1000',
    ]


def test_a_job_without_a_limit_has_minus_one_and_one_that_ends_meanwhile_is_left_out(tmp_path: Path) -> None:
    cgroups = node(tmp_path, memory_max="max\n")
    assert cgroups.read()["17"].total == -1
    (tmp_path / "system.slice/default-0_slurmstepd.scope/job_17/memory.stat").unlink()
    assert cgroups.read() == {}


def test_a_node_without_jobs_says_nothing_of_any(tmp_path: Path) -> None:
    assert text({}) == ""
    assert not JobCgroups("default-0", tmp_path).are_there()


def write_process(proc: Path, pid: int, parent: int, name: str, *, ticks: int, uid: int, title: str = "") -> None:
    """A process as the kernel shows it. It has had so many ticks of CPU time, half of them by children."""
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    half = ticks // 2
    rest = f"S {parent} 1 1 0 -1 0 0 0 0 0 {half} 0 {half} 0 20 0 1 0 {pid * 10} 0 0"
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {rest}\n")
    (proc / str(pid) / "statm").write_text("1000 300 100 1 0 400 0\n")
    (proc / str(pid) / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (proc / str(pid) / "cmdline").write_text(f"{title or name}\0")


def test_what_ended_steps_of_a_job_used_still_counts_and_names_that_users_choose_do_not(tmp_path: Path) -> None:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    write_process(tmp_path, 1, 0, "slurmd", ticks=1000 * ticks, uid=0)
    write_process(tmp_path, 10, 1, "slurmstepd", ticks=0, uid=0, title="slurmstepd: [17.batch]")
    write_process(tmp_path, 11, 10, "a) S 1 (b", ticks=4 * ticks, uid=1000)
    write_process(tmp_path, 12, 11, "slurmstepd", ticks=0, uid=0, title="slurmstepd: [18.0]")  # as sudo may be called
    write_process(tmp_path, 13, 1, "slurmstepd", ticks=0, uid=1000, title="slurmstepd: [19.0]")
    write_process(tmp_path, 20, 1, "slurmstepd", ticks=0, uid=0, title="slurmstepd: [17.0]")
    write_process(tmp_path, 21, 20, "task", ticks=6 * ticks, uid=1000)
    jobs = JobProcesses(2**30, tmp_path)
    found = jobs.read()
    assert list(found) == ["17"]
    assert found["17"].total_seconds == 10
    assert (found["17"].rss, found["17"].cache, found["17"].uid) == (5 * 200 * page, 5 * 100 * page, 1000)
    for pid in (20, 21):
        (tmp_path / str(pid) / "stat").unlink()
    assert jobs.read()["17"].total_seconds == 10
    assert jobs.read()["17"].total_seconds == 10


def test_reading_takes_no_more_than_a_twentieth_of_the_time(tmp_path: Path) -> None:
    times = iter([0.0, 3.0, 62.9, 63.1, 63.2])
    figures = Figures("default-0", 0, tmp_path / "metrics.prom", lambda: next(times))
    (tmp_path / "metrics.prom").write_text("slurmstack_health_last_run_timestamp_seconds 1\n")
    first = figures.get()
    assert first.endswith(b"slurmstack_health_last_run_timestamp_seconds 1\n")
    (tmp_path / "metrics.prom").write_text("slurmstack_health_last_run_timestamp_seconds 2\n")
    assert figures.get() == first
    assert figures.get().endswith(b" 2\n")


def ask(request: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(request)
        theirs.shutdown(socket.SHUT_WR)
        answer(ours, lambda: b"figures\n")
        ours.close()
        return theirs.recv(65536)


def test_only_a_whole_request_for_the_figures_has_them() -> None:
    assert ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\nfigures\n")
    assert ask(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    assert ask(b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    assert ask(b"GET /metrics HTTP/1.1\r\n") == b""
    assert ask(b"GET /metrics HTTP/1.1\r\n" + b"x" * 8192 + b"\r\n\r\n") == b""


REQUEST = b"GET /metrics HTTP/1.1\r\n\r\n"


def attended(slow: Slow, address: str, request: bytes = REQUEST) -> bytes:
    """What a client is answered that waits after what it says; nothing where it is sent away."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(request)
        attend(ours, address, lambda: b"figures\n", slow, seconds=2.0 if request == REQUEST else 0.05)
        ours.close()
        with contextlib.suppress(ConnectionResetError):
            return theirs.recv(65536)
    return b""


def test_an_address_that_says_nothing_is_refused_for_a_while_and_others_are_not() -> None:
    now = [0.0]
    slow = Slow(lambda: now[0])
    assert attended(slow, "192.0.2.1").endswith(b"figures\n"), "who asks is answered, again and again"
    assert attended(slow, "192.0.2.1").endswith(b"figures\n")
    assert attended(slow, "192.0.2.1", request=REQUEST[:-1]) == b""
    assert attended(slow, "192.0.2.1") == b""
    assert attended(slow, "192.0.2.2").endswith(b"figures\n")
    now[0] = 25.0
    assert attended(slow, "192.0.2.1").endswith(b"figures\n")


def test_an_address_that_does_not_take_its_answer_is_refused_too() -> None:
    slow = Slow()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(REQUEST)
        attend(ours, "192.0.2.1", lambda: bytes(64 << 20), slow, seconds=0.05)
    assert "192.0.2.1" in slow


def test_the_time_in_which_figures_are_read_is_nobody_s_fault() -> None:
    now, slow = [0.0], Slow()

    def get() -> bytes:
        now[0] += 60
        return bytes(32 << 20)

    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor() as taking:
        theirs.sendall(REQUEST)
        taken = taking.submit(lambda: sum(len(part) for part in iter(lambda: theirs.recv(65536), b"")))
        attend(ours, "192.0.2.1", get, slow, now=lambda: now[0])
        ours.close()
        assert taken.result() > 32 << 20
    assert "192.0.2.1" not in slow


def test_addresses_that_are_refused_no_more_are_forgotten() -> None:
    now = [0.0]
    slow = Slow(lambda: now[0])
    for number in range(1000):
        slow.add(f"192.0.2.{number}", 1.0)
        now[0] += 4
    assert len(slow.had) <= 11


def test_an_address_that_stays_a_little_below_its_time_again_and_again_is_refused() -> None:
    """Ten such connections at once, and Prometheus, which waits 10 s, never had an answer."""
    now = [0.0]
    slow, had = Slow(lambda: now[0]), 0.0

    def get() -> bytes:
        return b"figures\n"

    class Dripping:
        def settimeout(self, _: float) -> None:
            pass

        def recv(self, _: int) -> bytes:
            now[0] += 1.7
            return REQUEST

        def sendall(self, _: bytes) -> None:
            pass

    for _ in range(10):
        before = now[0]
        attend(Dripping(), "192.0.2.1", get, slow, now=lambda: now[0])  # type: ignore[arg-type]
        had += now[0] - before
    assert had < 5
    assert "192.0.2.2" not in slow


def test_addresses_of_this_pod_are_known_in_both_ways_to_write_them() -> None:
    assert is_of_this_pod("127.9.9.9", socket.AF_INET)
    assert not is_of_this_pod("192.0.2.1", socket.AF_INET)
    if socket.has_dualstack_ipv6():
        assert is_of_this_pod("::ffff:127.0.0.1", socket.AF_INET6)
        assert not is_of_this_pod("::ffff:192.0.2.1", socket.AF_INET6)
