"""What keeps users away from what is the pod's: owners, modes, and what is mounted for reading only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from images.common.gpu_jobs import GpuJobs
from images.worker import confine, gres, slurmd
from tests.stacks import ROOT

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SYS_ADMIN = 21


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_a_start_gives_up_for_good_what_set_the_pod_up_and_nothing_else() -> None:
    told = "[int(line.split()[1], 16) for line in open('/proc/self/status') if line.startswith('Cap')]"
    program = f"""
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from images.common.boundary import give_up_set_up
print({told}, flush=True)
give_up_set_up()
give_up_set_up()  # a second time changes nothing
print({told}, flush=True)
os.execv(sys.executable, [sys.executable, "-c", "print({told})"])
"""
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], check=True, stdout=subprocess.PIPE, text=True)
    before, after, started = (
        dict(zip(CAPABILITIES, json.loads(line), strict=True)) for line in done.stdout.splitlines()
    )
    assert before["CapPrm"] >> SYS_ADMIN & 1
    for name in CAPABILITIES:
        assert after[name] == before[name] & ~(1 << SYS_ADMIN), name
    assert started["CapPrm"] == after["CapPrm"], "what it starts does not get it back"


def test_a_worker_runs_slurms_commands_only_when_it_has_given_that_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "node"
    jobs = GpuJobs(shown=tmp_path / "gpu-jobs", own=own / "gpu-jobs")
    monkeypatch.setattr(slurmd, "write_gres_conf", partial(gres.write_gres_conf, directory=own, jobs=jobs))
    for name in ("find", "write_slurm_conf"):
        monkeypatch.setattr(confine, name, partial(getattr(confine, name), directory=own))
    done: list[str] = []
    environment = {"CONTROLLER": "c:6817", "NODE_CONF": "CPUs=1"}
    for name in ("own_directory", "forget_configuration", "settle_shared", "prepare_own_root", "give_up_set_up",
                 "raise_locked_memory", "wait_for_munge", "wait_for_controller", "become"):  # fmt: skip
        monkeypatch.setattr(slurmd, name, lambda *_, name=name, **__: done.append(name))
    for name in ("waits_for_place", "lift_own_drain"):
        monkeypatch.setattr(slurmd, name, lambda *_, **__: done.append("slurm"))
    monkeypatch.setattr(slurmd, "fitting_gres", lambda text, _: text)
    monkeypatch.setattr(os, "environ", environment)

    slurmd.main()

    assert done.index("forget_configuration") < done.index("give_up_set_up") < done.index("slurm")
    assert done[-1] == "become"
    written = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert written == {"cgroup.conf", "confinement", "gpu-jobs/gpus.json", "gres.conf", "slurm.conf"}


def test_a_daemon_does_not_ignore_what_python_ignores() -> None:
    """Jobs inherit what slurmd ignores."""
    become = "from images.common.process import become; become(['grep', 'SigIgn', '/proc/self/status'], print)"
    done = subprocess.run([sys.executable, "-c", become], cwd=ROOT, capture_output=True, text=True, check=True)

    ignored = int(done.stdout.split()[-1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to keep")
def test_what_is_kept_is_all_there_is_for_good() -> None:
    told = "[int(line.split()[1], 16) for line in open('/proc/self/status') if line.startswith('Cap')]"
    program = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
from images.common.boundary import keep_only
keep_only("SYS_ADMIN", "CHOWN")
print({told}, flush=True)
keep_only("SYS_ADMIN", "CHOWN")  # a second time changes nothing
os.execv(sys.executable, [sys.executable, "-c", "print({told})"])
"""
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], check=True, stdout=subprocess.PIPE, text=True)
    kept, started = (dict(zip(CAPABILITIES, json.loads(line), strict=True)) for line in done.stdout.splitlines())
    both = 1 << SYS_ADMIN | 1
    assert kept == {"CapInh": kept["CapInh"] & both, "CapPrm": both, "CapEff": both, "CapBnd": both, "CapAmb": 0}
    assert started == kept, "what it starts does not get anything back"
