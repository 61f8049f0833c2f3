"""Programs of the controller: published versions, limits and starts of slurmctld, the trial of files, the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from images.common.command import Result
from images.common.kubernetes import Kube, KubeError, Object
from images.controller.await_config import await_config, wanted_of
from images.controller.check import complaints_in, scratch_files
from images.controller.configuration import KEEP_VERSIONS, Store, read_files
from images.controller.leave import SETTLE_SECONDS, SILENCE_SECONDS, Leaving
from images.controller.slurmctld import ClusterId, Slurmctld, command
from slurm import conf
from tests.fakes.commands import FakeClock, FakeRunner


def version(number: int) -> dict[str, str]:
    return {"slurm.conf": f"MaxJobCount={number}\n", "cgroup.conf": ""}


def test_old_versions_are_dropped_but_never_the_one_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    hashes = [store.publish(version(number)) for number in range(KEEP_VERSIONS + 4)]

    kept = {path.name for path in (tmp_path / "versions").iterdir()}

    assert {hashes[-1], hashes[-2]} <= kept
    assert len(kept) <= KEEP_VERSIONS + 1


def test_kubelets_own_entries_of_a_mounted_config_map_are_not_files(tmp_path: Path) -> None:
    data = tmp_path / "..2026_01"
    data.mkdir()
    (data / "slurm.conf").write_text("ä")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "slurm.conf").symlink_to("..data/slurm.conf")

    assert read_files(tmp_path) == {"slurm.conf": "ä"}
    mounted, named = wanted_of(["--mounted", str(tmp_path)]), wanted_of(["0123456789abcdef"])
    assert mounted is not None
    assert named is not None
    assert (mounted(), named()) == (conf.config_hash({"slurm.conf": "ä"}), "0123456789abcdef")


def test_a_mounted_configuration_that_changes_meanwhile_is_the_one_that_counts() -> None:
    mounted = iter(["first", "first", "second"])
    status = {"active": "second", "pending": None, "rejected": None}
    assert await_config(lambda: next(mounted), lambda: status, lambda _: None, FakeClock()) == 0


def test_the_rejection_of_another_configuration_is_none_of_ours() -> None:
    answers: Iterator[dict[str, Any]] = iter(
        [{"active": "old", "rejected": {"hash": "x", "message": "m"}}, {"active": "h", "rejected": None}]
    )
    assert await_config(lambda: "h", lambda: next(answers), lambda _: None, FakeClock()) == 0


# ---------------------------------------------------------------- slurmctld

NODES = "scontrol show nodes"


def obstacle(new: str, old: str, *, jobs: int = 0, nodes: int = 0) -> tuple[str | None, list[str]]:
    """What is said about a change of slurm.conf, and the commands that were run for it."""
    runner = FakeRunner({"squeue": Result(code=0, stdout="1\n" * jobs), NODES: Result(code=0, stdout="n\n" * nodes)})
    return Slurmctld(runner=runner).too_small({"slurm.conf": new}, {"slurm.conf": old}), runner.commands


def test_fewer_jobs_than_there_are_is_refused() -> None:
    for new, old in (("MaxJobCount=3\n", "MaxJobCount=5\n"), ("maxjobcount=3\n", "")):
        said, commands = obstacle(new, old, jobs=4)
        assert "MaxJobCount=3 is too small: slurmctld has 4 records" in str(said)
        assert "--states=all" in commands[0]


def test_fewer_nodes_than_there_are_is_refused() -> None:
    said, _ = obstacle("MaxNodeCount=1024\n", "MaxNodeCount=4096\n", nodes=1500)
    assert "MaxNodeCount=1024 is too small: slurmctld has 1500 records" in str(said)


def test_slurmctld_is_not_asked_where_no_limit_becomes_smaller() -> None:
    both = "MaxJobCount=5\nMaxNodeCount=4\n"
    for new, old in ((both, both), ("", "MaxJobCount=9\n")):
        assert obstacle(new, old, jobs=100000, nodes=100000) == (None, [])


def test_a_smaller_limit_is_refused_while_slurmctld_does_not_say_what_it_holds() -> None:
    silent = Slurmctld(runner=FakeRunner({"squeue": Result(code=1)}))
    assert silent.too_small({"slurm.conf": "MaxJobCount=5000\n"}, {"slurm.conf": ""}) is not None


def test_a_cluster_that_turned_accounting_off_takes_the_id_again(tmp_path: Path) -> None:
    """tests/slurm/test_accounting.py has real daemons."""
    without, using = {"slurm.conf": ""}, {"slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\n"}
    cluster = ClusterId(state=tmp_path)
    cluster.prepare(using)
    cluster.prepare(without)
    (tmp_path / "clustername").write_text("x|3")
    cluster.prepare(using)
    assert not (tmp_path / "clustername").exists()


@pytest.mark.parametrize(
    ("files", "ignores"),
    [((), False), (("clustername",), True), (("clustername", "assoc_usage"), False)],
    ids=["first start", "killed in its first minutes", "later"],
)
def test_missing_state_is_ignored_only_where_none_was_ever_saved(
    tmp_path: Path, files: tuple[str, ...], ignores: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert ("-i" in command(tmp_path)) == ignores


# ---------------------------------------------------------------- the trial


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        pytest.param("error: Bad SelectTypeParameter: X", "error: Bad SelectTypeParameter: X", id="repeated"),
        # It powers no node on or off.
        pytest.param("error: power_save module disabled, NULL SuspendProgram", "", id="no program for it"),
        ("error: power_save module disabled, invalid SuspendProgram x",) * 2,
    ],
)
def test_what_is_only_the_trial_s_is_no_complaint_and_others_are_told_once(said: str, complaint: str) -> None:
    assert complaints_in([said] * 2) == ((complaint,) if complaint else ())


# ---------------------------------------------------------------- what it gets


def scratch_conf(text: str, **others: str) -> str:
    return scratch_files({"slurm.conf": text, **others}, "/tmp/s", (1111, 2222))["slurm.conf"]


def test_no_program_that_needs_no_job_is_run() -> None:
    for line in (
        "ResumeProgram=/bin/danger", "SuspendProgram=/bin/danger", "resumefailprogram = /bin/danger",
        'SlurmctldPrimaryOnProg="/bin/danger with spaces"', "SlurmSchedLogFile=/danger",
    ):  # fmt: skip
        assert "danger" not in scratch_conf(f"ClusterName=a\n{line}\n")


def test_included_files_are_cleaned_too() -> None:
    files = {
        "slurm.conf": "Include site.conf\n",
        "site.conf": "ResumeProgram=/bin/danger\n",
        "topology.conf": "SwitchName=s\n",
    }

    found = scratch_files(files, "/tmp/s", (1111, 2222))

    assert "danger" not in found["site.conf"]
    assert found["topology.conf"] == files["topology.conf"]


# ---------------------------------------------------------------- the end of slurmctld


def thing(name: str, *, deleted: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}}


DELETED = {"namespace": thing("slurm", deleted=True)}
LEAVING = [thing("default-0", deleted=True), thing("default-1", deleted=True)]


class FakeCluster:
    """The API, with a cluster that stays unless it is told otherwise."""

    def __init__(self, *steps: tuple[float, dict[str, Any]]) -> None:
        """What is so from which second on; at 0 also what is said here."""
        self.sets = [thing("controller"), thing("default")]
        self.namespace = thing("slurm")
        self.workers = [thing("default-0"), thing("default-1")]
        self.error: KubeError | None = None
        self.clock = FakeClock()
        self.steps = list(steps)
        self.clock.on_sleep = self.go_on
        self.go_on()

    def go_on(self) -> None:
        while self.steps and self.clock.time >= self.steps[0][0]:
            vars(self).update(self.steps.pop(0)[1])

    def list_stateful_sets(self) -> list[Object]:
        return list(self._answer(self.sets))

    def get_namespace(self) -> Object:
        return self.namespace

    def list_workers(self) -> list[Object]:
        return list(self._answer(self.workers))

    def _answer(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return items


def leave(*steps: tuple[float, dict[str, Any]], jobs: str = "") -> tuple[str, float, str]:
    """How it ends, after how many seconds, and what it has said."""
    cluster, log = FakeCluster(*steps), list[str]()
    runner = FakeRunner({"squeue": Result(code=0, stdout=jobs)})
    ending = Leaving(cast("Kube", cluster), log.append, runner=runner, clock=cluster.clock).run()
    return ending, cluster.clock.time, "\n".join(log)


def test_a_restart_is_not_held_up() -> None:
    assert leave() == ("the cluster stays", 0, "")


@pytest.mark.parametrize(
    "goes",
    [
        pytest.param({"sets": [thing("default")]}, id="the StatefulSet is gone"),
        pytest.param({"sets": [thing("controller", deleted=True)]}, id="it is being deleted"),
        pytest.param(DELETED, id="the namespace is being deleted"),
    ],
)
def test_where_the_cluster_goes_it_stays_until_the_last_worker_has_left(goes: dict[str, Any]) -> None:
    hours = 3600.0 * 50
    _, seconds, log = leave(
        (0, goes), (1, {"workers": LEAVING}), (hours, {"workers": LEAVING[:1]}), (hours + 60, {"workers": []}),
        jobs="17\n18\n",
    )  # fmt: skip
    assert seconds >= hours + 60
    assert log.splitlines()[0] == "waiting for 2 workers to leave (default-0, default-1), with 2 running jobs"
    assert "1 workers to leave (default-0)" in log


def test_workers_that_stay_are_not_waited_for() -> None:
    """Somebody has deleted the controller alone."""
    _, seconds, _ = leave((0, {"sets": [thing("default")]}))
    assert SETTLE_SECONDS <= seconds < SETTLE_SECONDS + 5


def test_an_api_that_never_answers_holds_nothing_up_for_long() -> None:
    _, seconds, log = leave((0, {"error": KubeError("no answer from the API server: timed out")}))
    assert SILENCE_SECONDS <= seconds < SILENCE_SECONDS + 1
    assert "timed out" in log
