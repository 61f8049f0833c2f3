"""Applies that are cut short or come together: the cluster is whole afterwards, and nobody has to mend anything."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import asking_doctor
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.stacks import ROOT, with_change

POWER_CUT = """\
#!/bin/sh
case " $* " in *" apply --server-side "*) {kubectl} "$@"; kill -KILL $PPID; exit 1;; esac
exec {kubectl} "$@"
"""
"""A kubectl at which the command that calls it dies: all is applied then, and nothing was awaited or deleted."""


DEAF = """\
#!/bin/sh
echo >>{calls}
[ "$(wc -l <{calls})" -lt "$CUT_AT" ] || { kill -KILL $PPID; exit 1; }
exec {kubectl} "$@"
"""
"""A kubectl at whose call number CUT_AT the command that calls it dies."""

KEEPS_THE_LOCK = """\
#!/bin/sh
case " $* " in *" delete --raw "*) while [ -e {hold} ]; do sleep 0.2; done;; esac
exec {kubectl} "$@"
"""
"""A kubectl with which the command that calls it keeps its lock as long as there is a file."""

LACKS = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "lacks", "labels": {"app.kubernetes.io/part-of": "slurmstack"}},
    "spec": {
        "containers": [
            {"name": "program", "image": "none", "volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
        ],
        "volumes": [{"name": "settings", "configMap": {"name": "comes-later"}}],
    },
}  # fmt: skip
"""A pod of the cluster's that Kubernetes cannot start yet."""

SEED = int(os.environ.get("CUT_SEED", "18"))
CUTS = 3


def shim(directory: Path, text: str) -> str:
    """PATH with a kubectl of this text."""
    file = directory / "bin/kubectl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return f"{file.parent}:{os.environ['PATH']}"


def await_nodes(slurm: SlurmOnKubernetes, names: set[str]) -> None:
    """Until Slurm has these nodes and no others."""
    wait_until(lambda: slurm.nodes().keys() == names, lambda: str(slurm.nodes()))


def begin(slurm: SlurmOnKubernetes, directory: Path, **environment: str) -> subprocess.Popen[str]:
    """Start `up` with a stack file of its own, as the sections are now."""
    directory.mkdir(exist_ok=True)
    mine = SlurmOnKubernetes(engine=slurm.engine, directory=directory, sections=slurm.sections)
    command = ["up", "--yes", "--engine", slurm.engine, "--config", str(mine.file)]
    return subprocess.Popen(
        [sys.executable, "-m", "cli.entry", *command],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_at_once_after_one_that_was_killed_midway_come_one_after_the_other(
    two_nodes: SlurmOnKubernetes, tmp_path: Path
) -> None:
    slurm = two_nodes
    if slurm.engine != "kubectl":
        pytest.skip("Pulumi locks its own state")
    path = shim(tmp_path, POWER_CUT.format(kubectl=slurm.kubectl.program))
    before = slurm.sections
    slurm.sections = with_change(before, "slurm.settings.MessageTimeout", 33)
    killed = begin(slurm, tmp_path / "killed", PATH=path)
    killed.communicate()
    assert killed.returncode < 0
    assert slurm.kubectl.items("lease", "slurmstack", "-n", slurm.namespace), "nobody gave the lock back"
    assert "was cut short: the cluster may be half changed" in asking_doctor.first(slurm)["cause"]

    first = begin(slurm, tmp_path / "first")
    slurm.sections = before
    second = begin(slurm, tmp_path / "second")
    said = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert all(f"Waiting for slurmstack up of {os.environ.get('USER') or os.getuid()}@" in text for text in said), said
    assert not slurm.kubectl.items("lease", "slurmstack", "-n", slurm.namespace)
    slurm.sections = before
    if slurm.preview()["changes"]:
        slurm.sections = with_change(before, "slurm.settings.MessageTimeout", 33)
        assert slurm.preview()["changes"] == [], "parts of one and parts of the other"
        slurm.sections = before
        slurm.up()


def test_a_change_that_is_cut_anywhere_is_whole_after_the_next_one_and_costs_no_job(
    two_nodes: SlurmOnKubernetes, tmp_path: Path
) -> None:
    """A pool comes and goes with a setting of slurm.conf, and each time the command is killed somewhere in it."""
    slurm = two_nodes
    if slurm.engine != "kubectl":
        pytest.skip("what Pulumi leaves of an update that is cut is Pulumi's (docs/changes.md)")
    calls, chance = tmp_path / "calls", random.Random(SEED)
    text = DEAF.replace("{calls}", str(calls)).replace("{kubectl}", slurm.kubectl.program)
    environment = {"PATH": shim(tmp_path, text)}
    states = [slurm.sections]
    more = {**slurm.sections["worker_nodes"]["default"], "size": 1}
    changed = with_change(slurm.sections, "worker_nodes.more", more)
    changed = with_change(changed, "partitions.main.pools", ["default", "more"])
    states.append(with_change(changed, "slurm.settings.MessageTimeout", 34))
    job = slurm.submit("sleep 600", "--exclusive", "--nodelist=default-1")
    slurm.await_job(job, "RUNNING")
    most = 0
    for number in range(CUTS + 1):
        slurm.sections = states[(number + 1) % 2]
        calls.write_text("")
        cut_at = chance.randint(1, most) if most else 10**6  # the first one is whole, and counts the calls
        up = begin(slurm, tmp_path / f"cut-{number}", CUT_AT=str(cut_at), **environment)
        said = up.communicate()[0]
        assert (up.returncode < 0) is (number > 0), f"cut at call {cut_at} of about {most}: {up.returncode}\n{said}"
        most = most or len(calls.read_text().splitlines()) * 2 // 3  # the way back has fewer of them
        slurm.up()
        assert slurm.preview()["changes"] == [], f"cut at call {cut_at}"
        wanted = {"default-0", "default-1", *(["more-0"] if "more" in slurm.sections["worker_nodes"] else [])}
        await_nodes(slurm, wanted)
        assert slurm.job_state(job) == "RUNNING"
    slurm.slurm(f"scancel {job}")


def test_a_pod_without_its_configmap_is_no_error_for_doctor_in_the_first_minute_of_an_apply(
    two_nodes: SlurmOnKubernetes, tmp_path: Path
) -> None:
    slurm, lacks = two_nodes, "there is no ConfigMap comes-later"
    if slurm.engine != "kubectl":
        pytest.skip("Pulumi locks its own state")
    hold = tmp_path / "hold"
    hold.touch()
    path = shim(tmp_path, KEEPS_THE_LOCK.format(kubectl=slurm.kubectl.program, hold=hold))
    up = begin(slurm, tmp_path / "other", PATH=path)

    def severity() -> str:
        found = [item for item in asking_doctor.findings(slurm) if lacks in str(item)]
        return str(found[0]["severity"]) if found else ""

    try:
        wait_until(
            lambda: slurm.kubectl.items("lease", "slurmstack", "-n", slurm.namespace), "the other one is at work"
        )
        slurm.kubectl.run("create", "-n", slurm.namespace, "-f", "-", stdin=json.dumps(LACKS))
        wait_until(severity, "doctor has seen what Kubernetes says", timeout=30)
        assert severity() == "note"
        hold.unlink()
        assert up.wait(60) == 0
        assert severity() == "error", "nobody is at work who would make it"
    finally:
        hold.unlink(missing_ok=True)
        up.communicate()
        slurm.kubectl.run("delete", "pod", "lacks", "-n", slurm.namespace, "--ignore-not-found", "--grace-period=1")
