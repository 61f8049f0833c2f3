"""Many compute nodes in one sandbox: the files of a rendered stack, and the command line of the worker's image.

Unlike a worker's pod, a node here shares its root file system, process list and munged with all others. Its network,
host name, spool directory and /run are its own, so that nothing in slurm.conf has to differ from a real stack.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from config import load_config
from images.worker.slurmd import slurmd_command
from slurm.conf import render, settings_of, slurmdbd_conf
from slurm.sizing import node_conf
from tests.bench.scale.network import Networks
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.kubernetes import ENVIRONMENT, KubernetesSandbox
from tests.slurm.pod import Pod, wait_until
from tests.stacks import dev, with_change

MACHINE = "machine"
"""The pod in which all nodes run."""

NODES = int(os.environ.get("SCALE_NODES", "1000"))
"""Another number is for trying out."""

ARRAYS, TASKS = 10, 1000
JOBS = ARRAYS * TASKS

THREADS, STEP_THREADS = 12, 3000
"""Of one idle slurmd with the shell that started it (measured: 11), and more of a step on a hundred of them."""

MEMORY_MIB = 10
"""Of one slurmd; measured: 7."""

NODE = """
mount --bind /run/munge /mnt
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/munge /run/slurm
mount --bind /mnt /run/munge
mount -t tmpfs -o mode=755 tmpfs /var/spool/slurmd
hostname "$1"
shift
exec "$@"
"""
"""What a node has for itself; its arguments: the node's name, then slurmd's command line."""


def lacking() -> str:
    """What this machine has too little of for so many nodes; empty where they fit."""
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    threads = running + NODES * THREADS + STEP_THREADS
    if threads > limit:
        return f"{threads} threads of at most {limit}"
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    needed, free = NODES * MEMORY_MIB + 1000, int(memory["MemAvailable"].split()[0]) // 1024
    if needed > free:
        return f"{needed} MiB of memory, {free} are free"
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{NODES + 200} open files of at most {files}" if files < NODES + 200 else ""


def many_jobs(script: str, options: str) -> str:
    """What makes 10,000 jobs: held tasks of arrays, each changed a little, and then released.

    So each has a record of its own, as jobs have that came one by one.
    """
    return f"""
        set -e; cd /tmp
        for array in $(seq {ARRAYS}); do
            number=$(sbatch --uid=nobody --parsable --hold {options} --array=0-{TASKS - 1} --output=/dev/null \\
                --wrap '{script}')
            seq -f "update jobid=${{number}}_%g nice=1" 0 {TASKS - 1}
            echo "release $number"
        done > commands
        scontrol < commands
    """


def ask(sandbox: ScaleSandbox, command: str, *, timeout: float = 60) -> str:
    """What a command prints beside slurmctld, which has to succeed."""
    done = sandbox.run(command, timeout=timeout)
    assert done.returncode == 0, f"{command[:80]}: {done.stderr}"
    return done.stdout


class ScaleSandbox(AccountingSandbox, KubernetesSandbox):
    """A controller with accounting and any number of nodes; a stand-in for Kubernetes says where these are.

    Health is off: each node would keep a Python of its own in memory, 15 GB in all.
    """

    slurmdbd_settings = settings_of(slurmdbd_conf(load_config(dev())))

    def __init__(self, nodes: int, changes: Mapping[str, Any] | None = None) -> None:
        """`changes`: of the development stack's file, dotted path -> value."""
        stack = dev()
        always = {"worker_nodes.default.size": nodes, "health": {"enabled": False}}
        for path, value in {**always, **(changes or {})}.items():
            stack = with_change(stack, path, value)
        config = load_config(stack)
        self.names = [f"default-{number}" for number in range(nodes)]
        self._open = ExitStack()
        self._networks = Networks(0, 0)
        machines: dict[str, dict[str, str]] = {f"machine-{number}": {} for number in range(nodes)}
        super().__init__(config.slurm.version, config=render(config), workers=0, nodes=machines)
        self.node_conf = node_conf("default", config.worker_nodes["default"])
        for number, name in enumerate(self.names):
            self.place(name, f"machine-{number}")

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.add_pod(MACHINE, "worker")
            (self.machine.root / "var/spool/slurmd").mkdir(exist_ok=True)
            self._networks = self._open.enter_context(Networks(self.controller.pid, len(self.names)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *arguments: object) -> None:
        super().__exit__(*arguments)
        self._open.close()

    def start_controller_daemons(self, pod: Pod) -> None:
        """With the stand-in for Kubernetes."""
        pod.start_program("config-agent", ENVIRONMENT)
        self.start_slurmctld()

    def start_slurmctld(self) -> None:
        """Returns when it answers."""
        self.controller.start_program("slurmctld")
        wait_until(
            lambda: "is UP" in self.run("scontrol ping").stdout, lambda: self.controller.log("slurmctld")[-1500:], 60
        )

    def end_slurmctld(self, how: str) -> None:
        """Returns when it is gone."""
        self.run(["pkill", f"-{how}", "--exact", "slurmctld"])
        wait_until(lambda: self.run(["pgrep", "--exact", "slurmctld"]).returncode != 0, "slurmctld to be gone", 60)

    @property
    def machine(self) -> Pod:
        """The pod of all nodes."""
        return self.pods[MACHINE]

    def start_nodes(self) -> None:
        """Start every slurmd; none of them has to be there yet when this returns."""
        for number, name in enumerate(self.names):
            self._start_node(number, name)

    def _start_node(self, number: int, name: str) -> None:
        command = slurmd_command("controller-0:6817", self.node_conf, name, "nothing", "")
        inside = ["unshare", "--mount", "--uts", "sh", "-ec", NODE, "node", name, *command]
        argv = self._with_network(self.machine.command(inside), self._networks.path(number))
        with (self.machine.work / "slurmd.log").open("ab") as log:
            slurmd = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.machine.processes.append(slurmd)

    def as_user(self, command: str, *, timeout: float = 300) -> str:
        """What a command prints to somebody who may submit jobs, with the worker's programs."""
        user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "bash", "-c", f"cd /tmp; {command}"]
        argv = self.machine.command(user, {"SLURM_CONF_SERVER": "controller-0:6817"})
        full = self._with_network(argv, f"/proc/{self.controller.pid}/ns/net")
        done = subprocess.run(full, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}"
        return done.stdout

    @staticmethod
    def _with_network(argv: list[str], network: str) -> list[str]:
        return [f"--net={network}" if word == "--net" else word for word in argv]

    def idle(self) -> int:
        """How many nodes answer and could take a job."""
        return self.run(["sinfo", "--noheader", "--Node", "--format=%T"]).stdout.split().count("idle")

    def await_idle(self, timeout: float) -> None:
        """Wait until that is so for all."""

        def why() -> str:
            return f"{len(self.names)} nodes idle: {self.run('sinfo').stdout}\n{self.machine.log('slurmd')[-3000:]}"

        wait_until(lambda: self.idle() == len(self.names), why, timeout)
