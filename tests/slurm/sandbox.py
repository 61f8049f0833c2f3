"""A Slurm cluster from the images' own root file systems, without Kubernetes: one set of namespaces per "pod".

Each pod has its own mounts, processes, host name and network, joined by a bridge in the controller's network namespace.
Nothing touches the host: the root file systems are lower layers of overlays, and ending a pod's first process ends all.
The programs that run are the images' own (/usr/libexec/slurmstack), as in Kubernetes.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.fakes.node_conf import document
from tests.nodes import SHOW, in_state, node_states, run_now
from tests.rootfs import rootfs
from tests.slurm.pod import HANG_SECONDS, LIBEXEC, Pod, wait_until

NETWORK = "10.231"
BRIDGE_ADDRESS = "02:00:0a:e7:00:01"
DEFAULT_NODE_CONF = "CPUs=2 RealMemory=1000 Feature=default"


class SlurmSandbox:
    """A controller and workers of one Slurm version; use it as a context manager.

    `config` is the content of the ConfigMap: file name -> text, with `slurm.conf` naming `SlurmctldHost=controller-0`.
    """

    def __init__(
        self,
        version: str = "24.11",
        *,
        config: Mapping[str, str],
        workers: int = 2,
        node_conf: str = DEFAULT_NODE_CONF,
        jail: Path | None = None,
    ) -> None:
        self.version = version
        self.work = Path(tempfile.mkdtemp(prefix="slurm-sandbox-"))
        self.config_directory = self.work / "config"
        self.state = self.work / "state"
        self.node_conf = node_conf
        self._jail = jail
        self.pods: dict[str, Pod] = {}
        self._numbers: dict[str, int] = {}
        self._workers = workers
        self._secret = self.work / "secrets"
        self.jwt_secret = self.work / "jwt"
        """The key of the tokens as slurmctld and slurmdbd mount it, at /secrets/jwt."""
        for directory in (self.config_directory, self.state, self._secret, self.jwt_secret):
            directory.mkdir()
        (self.jwt_secret / "jwt_hs256.key").write_bytes(secrets.token_bytes(32))
        (self._secret / "munge.key").write_bytes(secrets.token_bytes(128))
        self.set_config(config)

    # ---------------------------------------------------------------- life

    def __enter__(self) -> Self:
        try:
            self.start_controller()
            for ordinal in range(self._workers):
                self.start_worker(f"default-{ordinal}")
            self.wait_for_nodes(self._workers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pod in reversed(list(self.pods.values())):
            pod.stop()
        shutil.rmtree(self.work, ignore_errors=True)

    def set_config(self, files: Mapping[str, str]) -> None:
        """Replace the content of the mounted ConfigMap."""
        for path in self.config_directory.iterdir():
            if path.name not in files:
                path.unlink()
        for name, content in files.items():
            temporary = self.config_directory / f".{name}"
            temporary.write_text(content)
            temporary.rename(self.config_directory / name)

    @property
    def jail(self) -> Path:
        """Where the jail's volume is on this machine."""
        assert self._jail is not None, "this cluster was started without a jail"
        return self._jail

    @property
    def controller(self) -> Pod:
        return self.pods["controller-0"]

    def start_controller(self, *, daemons: bool = True) -> Pod:
        """A controller pod: munged, config-agent and slurmctld."""
        pod = self.add_pod(
            "controller-0",
            "controller",
            {
                self.config_directory: "/config/slurm",
                self.state: "/var/spool/slurmctld",
                self.jwt_secret: "/secrets/jwt",
            },
        )
        if daemons:
            self.start_controller_daemons(pod)
        return pod

    def start_controller_daemons(self, pod: Pod) -> None:
        """config-agent and slurmctld; returns when slurmctld answers."""
        self.start_agent(pod)
        pod.start_program("slurmctld")
        wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, self._why(pod, "config-agent", "slurmctld"))

    def start_agent(self, pod: Pod) -> None:
        """config-agent in the controller's pod."""
        pod.start_program("config-agent")

    def start_worker(self, name: str) -> Pod:
        """A worker pod: munged and slurmd."""
        return self.start_worker_on(name)

    def start_worker_on(
        self,
        name: str,
        *,
        binds: Mapping[Path, str] | None = None,
        env: Mapping[str, str] | None = None,
        before: Callable[[Pod], None] = lambda _: None,
    ) -> Pod:
        """A worker pod on a machine with more. `before`: what the machine does to the pod before slurmd starts."""
        own = {"CONTROLLER": "controller-0:6817", "POOL": name.rpartition("-")[0], "NODE_CONF": self.node_conf}
        if self._jail:
            own["JAIL"] = "/jail"
        own |= env or {}
        own["NODE_CONF"] = document(own["NODE_CONF"])
        pod = self.add_pod(name, "worker", {**({self._jail: "/jail"} if self._jail else {}), **(binds or {})}, env=own)
        before(pod)
        pod.start_program("slurmd", own)
        return pod

    def add_pod(
        self,
        name: str,
        role: str,
        binds: Mapping[Path, str] | None = None,
        *,
        munged: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Pod:
        """A pod in which munged runs, and nothing else yet."""
        work = self.work / f"pod-{name}"
        pod = Pod(
            name=name, role=role, lower=str(rootfs(role, self.version)), work=work,
            binds={self._secret: "/secrets/munge", **(binds or {})}, env=env or {},
        )  # fmt: skip
        self.pods[name] = pod
        # Never given twice: the kernel needs a moment to forget the network of a pod that has ended.
        self._numbers[name] = max(self._numbers.values(), default=0) + 1
        pod.start()
        self._connect(pod)
        self._write_hosts()
        if munged:
            pod.start_program("munged")
        return pod

    def remove_pod(self, name: str) -> None:
        """End a pod as a node's failure would."""
        pod = self.pods.pop(name)
        pod.stop()
        shutil.rmtree(pod.work, ignore_errors=True)

    def clear_state(self) -> None:
        """Empty the controller's state volume."""
        shutil.rmtree(self.state)
        self.state.mkdir()

    def _address(self, name: str) -> str:
        """Of a pod; the first one has 10.231.0.1, on which the benches' networks count."""
        high, low = divmod(self._numbers[name] - 1, 250)
        return f"{NETWORK}.{high}.{low + 1}"

    def _connect(self, pod: Pod) -> None:
        """Join the pod's network to the bridge, which lives in the first pod's namespace."""
        first = next(iter(self.pods.values()))
        address = f"{self._address(pod.name)}/16"
        inside = ["nsenter", f"--target={first.pid}", "--net", "ip"]
        if pod is first:
            commands = [
                # Without an address of its own the bridge takes the lowest of its ports: a pod that comes or goes could
                # change it, and all others would lose the controller for up to half a minute (measured).
                ["link", "add", "br0", "address", BRIDGE_ADDRESS, "type", "bridge"],
                ["addr", "add", address, "dev", "br0"],
                ["link", "set", "br0", "up"],
            ]
            for command in commands:
                subprocess.run([*inside, *command], check=True)
            return
        port = f"p{self._numbers[pod.name]}"
        subprocess.run(
            [*inside, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pod.pid)], check=True
        )
        subprocess.run([*inside, "link", "set", port, "master", "br0", "up"], check=True)
        own = ["nsenter", f"--target={pod.pid}", "--net", "ip"]
        subprocess.run([*own, "addr", "add", address, "dev", "eth0"], check=True)
        subprocess.run([*own, "link", "set", "eth0", "up"], check=True)

    def cut_off(self, name: str, *, cut: bool = True) -> None:
        """Have all that the first pod sends to this one vanish without an answer, or arrive again."""
        first = next(iter(self.pods.values()))
        entry = [self._address(name), "dev", "br0"]
        change = ["replace", *entry, "lladdr", "02:00:00:00:00:01", "nud", "permanent"] if cut else ["del", *entry]
        subprocess.run(["nsenter", f"--target={first.pid}", "--net", "ip", "neigh", *change], check=True)

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{self._address(name)} {name}" for name in self.pods)]
        for pod in self.pods.values():
            (pod.root / "etc/hosts").write_text("\n".join(lines) + "\n")
            (pod.root / "etc/resolv.conf").write_text("")

    def _why(self, pod: Pod, *programs: str) -> str:
        return f"pod {pod.name} to work; logs are in {pod.work}: {', '.join(programs)}"

    # ---------------------------------------------------------------- use

    def run(
        self,
        command: Sequence[str] | str,
        *,
        pod: str = "controller-0",
        timeout: float = HANG_SECONDS,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod, by default in the controller's."""
        return self.pods[pod].run(command, timeout=timeout, env=env)

    def node_states(self) -> dict[str, frozenset[str]]:
        """Of each node, as slurmctld has them."""
        return node_states(self.run(SHOW).stdout)

    def is_idle(self, *names: str) -> bool:
        """Whether these nodes are there, and idle."""
        return {*names} <= {*in_state(self.run(SHOW).stdout)}

    def wait_for_idle(self, *names: str) -> None:
        """Wait until these nodes are there, and idle."""
        wait_until(lambda: self.is_idle(*names), lambda: f"{names} idle: {self.run(SHOW).stdout}\n{self.logs()}")

    def wait_for_nodes(self, count: int) -> None:
        """Wait until that many nodes are idle.

        A worker that finds slurmctld reconfiguring tries again after 1, 2, 4, ... seconds.
        """
        wait_until(
            lambda: len(in_state(self.run(SHOW).stdout)) >= count,
            lambda: f"{count} idle nodes: {self.run(SHOW).stdout}\n{self.logs()}",
        )

    def job(self, number: str) -> dict[str, str]:
        """What slurmctld has of a job."""
        words = self.run(f"scontrol show job {number} --oneliner").stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for_job(self, number: str, wanted: str, key: str = "JobState") -> None:
        """Wait until slurmctld has this of a job."""
        wait_until(lambda: self.job(number).get(key) == wanted, lambda: f"{wanted}: {self.job(number)}\n{self.logs()}")

    def wait_for_start(self, job: str) -> None:
        """Wait until a job that was requeued runs, but not for the two minutes that Slurm would have it wait."""
        run_now(lambda command: self.run(command).stdout, job)

    def logs(self) -> str:
        """All programs' output, for the message of a failed test."""
        parts = []
        for pod in self.pods.values():
            parts += [
                f"--- {pod.name} {path.stem}\n{path.read_text(errors='replace')}"
                for path in sorted(pod.work.glob("*.log"))
            ]
        return "\n".join(parts)


def populate_jail(version: str, directory: Path) -> str:
    """Fill `directory` with the jail image's own populate program; returns its output."""
    directory.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="slurm-populate-"))
    pod = Pod(
        name="populate", role="jail", lower=str(rootfs("jail", version)), work=work / "pod",
        binds={directory: "/jail"},
    )  # fmt: skip
    try:
        pod.start()
        done = pod.run([f"{LIBEXEC}/populate"], env={"JAIL_VERSION": f"{version}-test"}, timeout=300)
    finally:
        pod.stop()
        shutil.rmtree(work, ignore_errors=True)
    if done.returncode != 0:
        raise AssertionError(f"populate failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
