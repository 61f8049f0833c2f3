"""Partitions that left the stack: what is kept of them, until when, and that the stack does not notice."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from images.common.command import Result
from images.controller.agent import Agent, initial_status
from images.controller.check import Verdict
from images.controller.leaving import (
    BLOCK,
    block_of,
    drop_partitions,
    keep_partitions,
    leaving_partitions,
    without_block,
)
from images.controller.leaving_rounds import POLL_SECONDS, LeavingKeeper, count_jobs, in_a_list
from images.controller.publish import Files, Store, config_hash, stack_part, version_of
from images.controller.server import StatusBoard
from tests.fakes.commands import FakeClock

HEAD = "ClusterName=a\nNodeSet=a Feature=a\n"
MAIN = "PartitionName=main Nodes=a MaxTime=UNLIMITED State=UP Default=YES\n"
GPU_NODES = "NodeSet=gpu Feature=gpu\n"
GPU = "PartitionName=gpu Nodes=gpu MaxTime=1:00:00 State=UP\n"
BOTH = {"slurm.conf": HEAD + GPU_NODES + MAIN + GPU, "cgroup.conf": "x\n"}
ONE = {"slurm.conf": HEAD + MAIN, "cgroup.conf": "x\n"}


def test_a_partition_that_leaves_stays_closed_with_the_nodes_that_only_it_needs() -> None:
    kept = keep_partitions(ONE, BOTH)

    assert kept == {
        "slurm.conf": HEAD + MAIN + BLOCK
        + "NodeSet=gpu Feature=gpu\nPartitionName=gpu Nodes=gpu MaxTime=1:00:00 State=DRAIN\n",
        "cgroup.conf": "x\n",
    }  # fmt: skip
    assert leaving_partitions(kept) == ("gpu",)


def test_nodes_that_the_stack_still_declares_are_declared_once() -> None:
    same_nodes = {"slurm.conf": HEAD + MAIN + "PartitionName=second Nodes=a State=UP\n"}

    assert block_of(keep_partitions(ONE, same_nodes)) == "PartitionName=second Nodes=a State=DRAIN\n"


def test_a_partition_over_several_pools_keeps_those_that_leave() -> None:
    before = {"slurm.conf": HEAD + GPU_NODES + MAIN + "PartitionName=all Nodes=a,gpu State=UP\n"}

    assert block_of(keep_partitions(ONE, before)) == (
        "NodeSet=gpu Feature=gpu\nPartitionName=all Nodes=a,gpu State=DRAIN\n"
    )


def test_a_pool_that_leaves_a_partition_that_stays_is_not_kept() -> None:
    before = {"slurm.conf": HEAD + GPU_NODES + "PartitionName=main Nodes=a,gpu State=UP Default=YES\n"}

    assert keep_partitions(ONE, before) == ONE


@pytest.mark.parametrize(
    "option",
    [
        *("Default=YES", "Alternate=other", "QOS=small", "AllowQos=a,b", "DenyQos=a", "AllowGroups=g"),
        *("AllowAccounts=a", "DenyAccounts=a", "allowqos=a", 'ALLOWACCOUNTS="a"'),
    ],
)
def test_what_may_leave_together_with_a_partition_is_not_named_by_it(option: str) -> None:
    before = {"slurm.conf": f"{HEAD}PartitionName=old {option} Nodes=a State=UP MaxTime=5\n"}

    assert block_of(keep_partitions(ONE, before)) == "PartitionName=old Nodes=a MaxTime=5 State=DRAIN\n"


@pytest.mark.parametrize(("state", "closed"), [("UP", "DRAIN"), ("down", "INACTIVE"), ("INACTIVE", "INACTIVE")])
def test_jobs_that_could_not_start_before_do_not_start_now(state: str, closed: str) -> None:
    before = {"slurm.conf": f"{HEAD}PartitionName=old Nodes=a State={state}\n"}

    assert block_of(keep_partitions(ONE, before)) == f"PartitionName=old Nodes=a State={closed}\n"


@pytest.mark.parametrize(
    ("option", "kept"),
    [("", " DefMemPerCPU=100"), (" DefMemPerCPU=7", " DefMemPerCPU=7"), (" defmempernode=7", " defmempernode=7")],
)
def test_jobs_that_wait_keep_the_memory_that_they_get_unasked(option: str, kept: str) -> None:
    before = {"slurm.conf": f"{HEAD}DefMemPerCPU=100\nPartitionName=old Nodes=a{option}\n"}
    larger = {"slurm.conf": f"{HEAD}DefMemPerCPU=5000\n{MAIN}"}

    block = block_of(keep_partitions(larger, keep_partitions(larger, before)))

    assert block == f"PartitionName=old Nodes=a{kept} State=DRAIN\n"


def test_keys_are_read_as_slurm_reads_them() -> None:
    before = {
        "slurm.conf": HEAD
        + "# PartitionName=comment Nodes=a\npartitionname=old  nodes = gpu state=up # closed soon\n"
        + "nodeset=gpu feature=gpu\nPartitionName=DEFAULT MaxTime=5\n  PartitionName=long \\\n Nodes=a\n"
    }
    files = {"slurm.conf": HEAD + "PARTITIONNAME=main Nodes=a\n"}

    assert block_of(keep_partitions(files, before)) == (
        "NodeSet=gpu feature=gpu\nPartitionName=old nodes=gpu State=DRAIN\nPartitionName=long Nodes=a State=DRAIN\n"
    )


def test_a_partition_that_is_kept_stays_over_further_changes_until_it_is_dropped() -> None:
    kept = keep_partitions(ONE, BOTH)
    changed = {**ONE, "slurm.conf": ONE["slurm.conf"] + "MaxJobCount=5\n"}

    again = keep_partitions(changed, kept)

    assert block_of(again) == block_of(kept)
    assert drop_partitions(again, ["gpu"]) == changed


def test_of_several_partitions_one_is_dropped_with_the_nodes_that_only_it_needs() -> None:
    other = "NodeSet=old Feature=old\nPartitionName=old Nodes=old State=UP\n"
    kept = keep_partitions(ONE, {"slurm.conf": BOTH["slurm.conf"] + other})
    assert leaving_partitions(kept) == ("gpu", "old")

    left = drop_partitions(kept, ["gpu"])

    assert block_of(left) == "NodeSet=old Feature=old\nPartitionName=old Nodes=old State=DRAIN\n"


def test_a_partition_that_comes_back_is_the_stacks_again() -> None:
    assert keep_partitions(BOTH, keep_partitions(ONE, BOTH)) == BOTH


def test_the_stack_knows_a_version_by_its_own_files_whatever_is_kept() -> None:
    kept = keep_partitions(ONE, BOTH)

    assert without_block(kept) == ONE
    assert stack_part(version_of(kept)) == config_hash(ONE)
    assert version_of(kept) != version_of(ONE) == config_hash(ONE)


def test_a_file_without_an_end_of_line_is_found_again_as_it_was() -> None:
    bare = {"slurm.conf": ONE["slurm.conf"].rstrip("\n")}

    assert without_block(keep_partitions(bare, BOTH)) == bare


def test_a_configuration_without_slurm_conf_is_left_to_the_check() -> None:
    assert keep_partitions({"cgroup.conf": "x"}, BOTH) == {"cgroup.conf": "x"}


def test_a_job_that_names_several_partitions_counts_for_each() -> None:
    jobs = count_jobs("main\nmain,gpu\ngpu\n")

    assert (jobs["main"], jobs["gpu"], jobs["other"]) == (2, 2, 0)


@pytest.mark.parametrize("text", [b"main,gpu", b"gpu,main", b"a,gpu,b", b"x-1,y_2,gpu", b"gpu,a,b"])
@pytest.mark.parametrize("before", [b"\0\0\0\x09", b"\0\0\0,", b"\0\0\0A", b"\0\0\0/"])
def test_a_list_of_partitions_is_found_in_the_state_of_slurmctld(text: bytes, before: bytes) -> None:
    """The byte before a string is its length, and may look like a letter."""
    assert in_a_list(b"\0\1main\0" + before + text + b"\0\xff", "gpu")


@pytest.mark.parametrize("text", [b"gpu", b"main,gpus", b"cpu=2,gres/gpu=1", b"gres:gpu,gres:shard", b"main,cpu"])
def test_other_strings_in_the_state_of_slurmctld_are_no_list_with_the_partition(text: bytes) -> None:
    assert not in_a_list(b"\0\0\0\x09" + text + b"\0\0\0\x05main\0", "gpu")


# ---------------------------------------------------------------- the agent and its rounds


class Controller:
    """An agent whose slurmctld takes every configuration, and has this queue."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = Store(directory / "store")
        self.up = False
        self.queue: str | None = ""
        self.asked = 0
        self.read: list[tuple[str, ...]] = []
        self.log: list[str] = []
        self.restart_agent()

    def restart_agent(self) -> None:
        self.clock = FakeClock()
        self.board = StatusBoard(initial_status("24.11.5"))
        self.agent = Agent(
            store=self.store, check=lambda _files: Verdict(starts=True, complaints=()), slurmctld=self,
            board=self.board, log=self.log.append, ready=self.directory / "ready", clock=FakeClock(),
        )  # fmt: skip
        self.keeper = LeavingKeeper(
            slurmctld=self,
            published=self.agent.published,
            drop=self.drop,
            log=self.log.append,
            state=self.directory,
            clock=self.clock,
        )

    def drop(self, partitions: Collection[str]) -> bool:
        return self.agent.drop(partitions)

    def is_up(self) -> bool:
        return self.up

    def listens(self) -> bool:
        return self.up

    def reconfigure(self) -> Result:
        self.read.append(leaving_partitions(self.files))
        return Result(code=0)

    def queue_text(self) -> str | None:
        self.asked += 1
        return self.queue if self.up else None

    @property
    def files(self) -> Files:
        return self.agent.published()

    def later(self) -> None:
        self.clock.sleep(POLL_SECONDS)
        self.keeper.round()


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    made = Controller(tmp_path)
    made.agent.take(BOTH)
    made.up = True
    made.agent.tick()
    return made


def test_even_an_empty_partition_is_closed_before_it_goes(controller: Controller) -> None:
    controller.agent.take(ONE)
    assert leaving_partitions(controller.files) == ("gpu",)

    controller.keeper.round()

    assert controller.files == ONE
    assert controller.read == [("gpu",), ()]


def test_the_update_of_the_stack_does_not_wait_for_the_jobs(controller: Controller) -> None:
    controller.queue = "gpu\n"

    controller.agent.take(ONE)

    assert controller.board.get().active == config_hash(ONE)
    assert controller.board.get().pending is None


def test_a_partition_goes_with_its_last_job_and_the_log_says_so(controller: Controller) -> None:
    controller.queue = "gpu\nmain,gpu\nmain\n"
    controller.agent.take(ONE)
    controller.keeper.round()
    assert controller.log[-1] == "partition gpu has left the stack: closed for new jobs, kept while it has any (2)"

    controller.queue = "main,gpu\n"
    controller.later()
    assert leaving_partitions(controller.files) == ("gpu",)

    controller.queue = "main\n"
    controller.later()
    assert controller.files == ONE
    assert controller.log[-1] == "no job is left of gpu: taken out of slurm.conf"
    assert controller.board.get().active == config_hash(ONE)


def test_what_a_user_writes_into_the_state_of_slurmctld_is_looked_at_once_only() -> None:
    """A look that goes back at every comma takes minutes for these (measured), and the test would not end."""
    assert not in_a_list(b"\0" + b"old," * 500_000 + b" \0", "old")
    assert not in_a_list(b"\0" + b"o" * 2_000_000 + b" \0", "old")


def test_a_job_that_runs_elsewhere_but_named_the_partition_keeps_it(controller: Controller) -> None:
    controller.queue = "main\n"
    (controller.directory / "job_state").write_bytes(b"\0\0\0\x09main,gpu\0")
    controller.agent.take(ONE)
    controller.keeper.round()
    assert leaving_partitions(controller.files) == ("gpu",)

    (controller.directory / "job_state").write_bytes(b"")
    controller.later()
    assert controller.files == ONE


def test_the_queue_is_asked_only_while_a_partition_leaves_and_not_all_the_time(controller: Controller) -> None:
    controller.later()
    assert controller.asked == 0

    controller.queue = "gpu\n"
    controller.agent.take(ONE)
    controller.keeper.round()
    controller.keeper.round()
    assert controller.asked == 1


def test_a_slurmctld_that_does_not_answer_keeps_its_partitions(controller: Controller) -> None:
    controller.agent.take(ONE)
    controller.queue = None

    controller.later()

    assert leaving_partitions(controller.files) == ("gpu",)


def test_a_partition_that_leaves_soon_after_another_is_looked_at_at_once(controller: Controller) -> None:
    three = {"slurm.conf": BOTH["slurm.conf"] + "PartitionName=old Nodes=a State=UP\n"}
    controller.queue = "gpu\n"
    controller.agent.take(three)
    controller.agent.take({"slurm.conf": three["slurm.conf"].replace(GPU, "")})
    controller.keeper.round()

    controller.agent.take(ONE)
    controller.keeper.round()

    assert leaving_partitions(controller.files) == ("gpu",)
    assert controller.log[-1] == "no job is left of old: taken out of slurm.conf"


def test_a_restart_of_agent_and_slurmctld_keeps_what_was_kept(controller: Controller) -> None:
    controller.queue = "gpu\n"
    controller.agent.take(ONE)
    (controller.directory / "ready").unlink()
    controller.up = False
    controller.restart_agent()

    controller.agent.take(ONE)
    controller.up = True
    controller.agent.tick()
    controller.keeper.round()

    assert leaving_partitions(controller.files) == ("gpu",)
    assert controller.board.get().active == config_hash(ONE)


def test_what_left_while_the_controller_was_down_is_kept_at_its_start(controller: Controller) -> None:
    (controller.directory / "ready").unlink()
    controller.up = False
    controller.restart_agent()

    controller.agent.take(ONE)

    assert leaving_partitions(controller.files) == ("gpu",)


def test_a_partition_that_comes_back_while_it_is_kept_is_open_again(controller: Controller) -> None:
    controller.queue = "gpu\n"
    controller.agent.take(ONE)
    controller.keeper.round()

    controller.agent.take(BOTH)

    assert controller.files == BOTH
    assert controller.board.get().active == config_hash(BOTH)
