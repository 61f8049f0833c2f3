"""slurmd: a compute node. The pod's name is the node's name; the pool's sizes come from the pod's environment."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.boundary import (
    RUN_SLURM,
    forget_configuration,
    give_up_set_up,
    own_directory,
    protect_cgroups,
    seal_root,
    settle_shared,
    without_set_up,
)
from images.common.command import run
from images.common.gpu_view import bind_driver
from images.common.health.contract import STATE
from images.common.jail_roots import hidden
from images.common.jail_view import CONF_CACHE, SPOOL, WORKER_BINDS, bind_into_jail, sssd_binds, user_volumes
from images.common.mountinfo import expect_filesystem
from images.common.process import GUARDED, become, program, required_env, with_preloaded
from images.common.readiness import wait_for_controller, wait_for_jail, wait_for_munge
from images.common.slurm_node import (
    LEAVING_REASON,
    TOPOLOGY_REASON,
    ControllerUnreachableError,
    Node,
    NodeConf,
    is_ours,
)
from images.common.slurm_records import MARK, NodeRecord
from images.common.wait import Clock, Reminder
from images.health.local import find_local
from images.worker import confine, helper, scratch
from images.worker.gres import write_gres_conf
from images.worker.job_mounts import JobMounts, shared_memory_size

ASK_TIMES: Final = 10
ASK_AGAIN_SECONDS: Final = 0.5
"""For slurmctld to say whether it has a switch tree."""

STARTS_DRAINED: Final = f" State=DRAIN Reason={TOPOLOGY_REASON}"
"""Added to `slurmd --conf`. It counts only when the record is made: a node that Slurm knows keeps its state."""

RDMA_DEVICES: Final = Path("/dev/infiniband")

_UNLIMITED: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

CONFINEMENT: Final = "confinement"
"""Key of the node's `Extra`, as `slurmstack status` looks for it."""

POWER_UP_SECONDS: Final = 10.0
POWER_UP_AGAIN_SECONDS: Final = 0.1
"""slurmctld powers up what jobs wait for once a second (power_save.c)."""


def waits_for_place(node: Node, log: Callable[[str], None], clock: Clock | None = None) -> bool:
    """Whether the node must register drained, until the configuration agent has put it into the switch tree.

    Before that it can run no job, and a queued job that tries to use it is put aside for good (measured).
    """
    clock = clock or Clock()
    for _ in range(ASK_TIMES):
        try:
            return node.has_switch_tree()
        except ControllerUnreachableError as error:
            last = error
            clock.sleep(ASK_AGAIN_SECONDS)
    log(f"cannot ask whether there is a switch tree, going on: {last}")
    return False


def raise_locked_memory(log: Callable[[str], None], devices: Path = RDMA_DEVICES) -> None:
    """Let jobs lock as much memory as they want, on machines with RDMA devices: registering memory locks it.

    The limit and not CAP_IPC_LOCK: a job's processes belong to a user and have no capabilities.
    """
    if not devices.is_dir() or resource.getrlimit(resource.RLIMIT_MEMLOCK) == _UNLIMITED:
        return
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, _UNLIMITED)
    except (ValueError, OSError) as error:
        log(f"jobs cannot lock the memory that RDMA needs: {error} (the container needs CAP_SYS_RESOURCE)")


def slurmd_command(controller: str, conf: str, name: str, confinement: str, mark: str = "") -> list[str]:
    """The daemon's command line. `confinement`: what the node says of that. `mark`: of an elastic node's record.

    -Z: a dynamic node, which registers itself. -b: reports this start as its boot; a pod would report the host's boot
    time, and a node that Slurm powered on would then never count as started.
    """
    extra = json.dumps({CONFINEMENT: confinement, **({MARK: mark} if mark else {})})
    command = ["/usr/sbin/slurmd", "-D", "-Z", "-b", "--conf-server", controller, "--conf", conf, "-N", name]
    return [*command, "--extra", extra]


def _record(node: Node, log: Callable[[str], None]) -> NodeRecord | None:
    try:
        return node.record()
    except ControllerUnreachableError as error:
        log(f"cannot ask for the node's record, going on: {error}")
        return None


def lift_own_drain(
    node: Node, record: NodeRecord | None, log: Callable[[str], None], *, keep_waiting: bool = False
) -> None:
    """Lift what an earlier pod of this name left behind; never what an administrator or a health check has set.

    That pod drained its node to leave, and was killed before it could delete the record. `record`: as it has just been
    read; Slurm's commands read those of all nodes for it, which a thousand workers that start do not ask for twice.
    `keep_waiting`: one that waits for its place in the switch tree goes on waiting.
    """
    if record is None or not (record.is_drained or record.is_down):
        return
    if not is_ours(record):
        log(f"node {node.name} stays {'+'.join(sorted(record.states))}: {record.reason or 'no reason given'}")
    elif not (keep_waiting and record.reason == TOPOLOGY_REASON):
        result = node.resume()
        done = "lifted the drain that an earlier pod of this name left"
        log(done if result.ok else f"cannot lift the own drain: {result.message}")


def give_up_jobs(node: Node, record: NodeRecord | None, log: Callable[[str], None]) -> None:
    """Have Slurm end, or put back into the queue, the jobs of a slurmd that was here before: none of them runs.

    Slurm itself looks for them when a node registers, but leaves out those that are younger than BatchStartTimeout
    (and ResumeTimeout, where there are elastic pools), and the node registers again only after 20 pings, 800 s
    (_purge_missing_jobs and ping_nodes of slurmctld). The node that is set down comes back with its registration.
    """
    if record is None or record.is_coming or not record.is_busy:
        return  # a node that Slurm powers up has the job that waits for this very start
    reason = record.reason if record.is_drained and record.reason else LEAVING_REASON
    result = node.set_down(reason)
    log("Slurm ends the jobs that were here" if result.ok else f"jobs that were here may stay: {result.message}")


def forget_elastic(node: Node, log: Callable[[str], None]) -> NodeRecord | None:
    """Delete the record of the time when the pool was elastic: Slurm would end this node when it is idle.

    The result is the record that there is then.
    """
    record = _record(node, log)
    if record is None or not record.is_cloud:
        return record
    deleted = node.delete()
    log("deleted its record as an elastic node" if deleted.ok else f"its old record stays: {deleted.message}")
    return None if deleted.ok else record


def await_power_up(node: Node, log: Callable[[str], None], clock: Clock | None = None) -> NodeRecord | None:
    """Return when Slurm waits for this node of an elastic pool, at the latest after POWER_UP_SECONDS with slurmctld.

    The pod is made when a job gets the node, up to a second before Slurm powers it up. A slurmd that was started before
    that and registers after it never counts as there (`waiting_for_node_boot` in slurmctld's node_mgr.c).

    The result is the record.
    """
    clock = clock or Clock()
    reminder, deadline = Reminder(log, clock), clock.now() + POWER_UP_SECONDS
    record: NodeRecord | None = None
    while clock.now() < deadline:
        try:
            record = node.record()
        except ControllerUnreachableError as error:
            reminder.waiting(f"slurmctld, to ask for the node's record: {error}")
            deadline = clock.now() + POWER_UP_SECONDS  # it may power this node up only when it is back
        else:
            if record is None or not record.is_powered_down:
                return record
        clock.sleep(POWER_UP_AGAIN_SECONDS)
    log("Slurm does not power this node up: going on")
    return record


def prepare_jail(jail: Path, conf: NodeConf, log: Callable[[str], None]) -> None:
    """Everything of the pod that jobs need inside the jail. Raises CannotGoOnError."""
    wait_for_jail(jail, log)
    volumes = user_volumes(os.environ.get("MOUNTS", ""))
    bind_into_jail(jail, (*WORKER_BINDS, *hidden(), *sssd_binds(), *volumes), log)
    # Jobs bring AMD's libraries along: they go with any driver, and no runtime brings them.
    if not bind_driver(jail, run, log) and conf.gpus and "GPU_VENDOR" not in os.environ:
        log(
            "this node offers GPUs, but the container runtime brought no driver libraries into the pod: is NVIDIA's "
            "runtime the default one on this machine?"
        )
    protect_cgroups(jail, run)


def guard_jail(jail: Path, log: Callable[[str], None]) -> None:
    """The last of what takes SYS_ADMIN in this process."""
    seal_root(run)
    size = shared_memory_size()
    helper.start(lambda: JobMounts(jail, size), log, containers=os.environ.get("CONTAINERS") == "yes")


def prepare_own_root() -> None:
    """What jobs need where there is no jail: they see the pod as it is. Raises CannotGoOnError."""
    for volume in user_volumes(os.environ.get("MOUNTS", "")):
        expect_filesystem(Path(volume.source), volume.filesystem)


def tell_whether_gpus() -> None:
    """Tell native/around.c whether it has to ask health-gpus before and after each job."""
    mark = STATE / "gpus"
    if find_local(os.environ).node.gpus > 0:
        STATE.mkdir(parents=True, exist_ok=True)
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def environment(*, confined: bool, in_jail: bool) -> dict[str, str]:
    """Slurmd's. INVOCATION_ID: it is where it is to be, as if systemd had started it."""
    joins = in_jail and not confine.has_join_plugin()
    env = with_preloaded(GUARDED, *([confine.JOIN_LIBRARY] if joins else []))
    return {**env, "INVOCATION_ID": "slurmstack"} if confined else env


def main() -> None:
    """Entry point."""
    with program("slurmd") as log:
        controller = required_env("CONTROLLER")
        conf = NodeConf.parse(required_env("NODE_CONF"))
        vendor = os.environ.get("GPU_VENDOR", "nvidia")
        for directory in (RUN_SLURM, SPOOL, CONF_CACHE):
            own_directory(directory)
        forget_configuration(CONF_CACHE)
        settle_shared()
        kind = os.environ.get("SCRATCH", "")
        conf = scratch.prepare(kind, conf, log)
        wait_for_munge(log)
        jail, name = os.environ.get("JAIL", ""), socket.gethostname()
        if jail:
            scratch.forbid_programs_of_others(kind)
            prepare_jail(Path(jail), conf, log)
        else:
            prepare_own_root()
        wanted = os.environ.get("CONFINEMENT", "auto") if jail else "off"
        own_cpus = os.environ.get("SHARED_CPUS") != "yes"
        topology = confine.read_topology() if own_cpus or conf.gres else None
        if own_cpus:
            conf = confine.described(conf, topology, os.sched_getaffinity(0))
        found = confine.find(wanted, name, conf, run, own_cpus=own_cpus)
        log(f"what holds jobs to what they asked for: {found.description}")
        write_gres_conf(conf, vendor, topology, runner=run, log=log)
        given = os.environ.get("PLUGINS", "").split()
        confine.write_slurm_conf(confined=found.confined, own_cpus=own_cpus, in_jail=bool(jail), given=given)
        if jail:
            guard_jail(Path(jail), log)
        tell_whether_gpus()
        give_up_set_up()
        if os.environ.get("JOB_METRICS") == "yes":
            from images.worker import job_metrics  # noqa: PLC0415  its HTTP server takes long to load

            job_metrics.start(name, log)
        raise_locked_memory(log)
        wait_for_controller(controller, log)
        node = Node(name=name, controller=controller)
        waits = waits_for_place(node, log)
        if mark := os.environ.get("ELASTIC", ""):
            record = await_power_up(node, log)
            # One that is there keeps the CPUs, memory and GPUs that it was made with: with another mark nobody would
            # know that they are older than the pod.
            mark = mark if record is None else record.mark
        else:
            record = forget_elastic(node, log)
        lift_own_drain(node, record, log, keep_waiting=waits)
        give_up_jobs(node, record, log)
        drained = STARTS_DRAINED if waits else ""
        command = without_set_up(
            slurmd_command(controller, conf.text + drained, name, found.description, mark), os.getpid()
        )
        become(command, log, env=environment(confined=found.confined, in_jail=bool(jail)))
