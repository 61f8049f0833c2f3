"""Two controllers in a sandbox, on one directory as their volume, and an address that leads to who has its epoch."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from images.common import terms
from images.controller.epochs import RENEWED
from images.controller.standby import PODS
from tests.slurm.minimal import with_settings
from tests.slurm.pod import HANG_SECONDS, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

CLIENT = "login-0"
HOST = "localhost(controller-0)"
"""SlurmctldHost with a standby (slurm_templates/slurm.conf.j2)."""

NO_API_SERVER = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1", "NAMESPACE": "slurm"}
"""There is one, and it answers nobody: all that happens in this sandbox happens without it."""

SAVED_SECONDS = 6
"""slurmctld saves its queue at most five seconds late, and forgets the rest when it is killed."""

SETTINGS = "EnforcePartLimits=NO\nMessageTimeout=10\n"
"""Jobs are accepted without a node, and a command that has asked a controller that was paused soon asks anew."""

HOLD = "sbatch --parsable --hold --output=/dev/null --wrap true"


class StandbySandbox(SlurmSandbox):
    """A login node and two controllers; the login node has the bridge, since nobody kills it."""

    def __init__(self, version: str = "24.11", *, config: Mapping[str, str], **more: Any) -> None:
        self._is_over = threading.Event()
        self._router = threading.Thread(target=self._follow, daemon=True)
        self._leads_to = ""
        config = {**config, "slurm.conf": with_settings(config["slurm.conf"], {"SlurmctldHost": HOST})}
        super().__init__(version, config=config, workers=0, **more)

    def start_controller(self, *, daemons: bool = True) -> Pod:
        del daemons
        client = self.add_pod(CLIENT, "login")
        for name in PODS:
            self.start_one(name)
        self._router.start()
        client.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
        wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, self.logs)
        return self.holder

    def start_one(self, name: str) -> Pod:
        """A controller pod."""
        spool = self.work / f"spool-{name}-{time.monotonic()}"  # an emptyDir: a new pod has a new one
        spool.mkdir()
        binds = {
            self.config_directory: "/config/slurm", self.state: str(terms.VOLUME), spool: "/var/spool",
            self.jwt_secret: "/secrets/jwt",
        }  # fmt: skip
        pod = self.add_pod(name, "controller", binds)
        self.start_agent(pod)
        self.start_standby(pod)
        return pod

    def start_agent(self, pod: Pod) -> None:
        """Returns when it can be seen in the pod, as `start_standby` does: nobody shall start a second one, which
        would end when this pod is the active one, as its port is taken.
        """
        process = pod.start_program("config-agent", NO_API_SERVER)
        wait_until(lambda: self.runs("config-agent", pod) or process.poll() is not None, self.logs)

    def start_standby(self, pod: Pod) -> None:
        """As kubelet starts a container again, too."""
        env = {"POD_UID": str(self._numbers[pod.name]), **NO_API_SERVER}
        process = pod.start_program("standby", env, container="slurmctld")
        wait_until(lambda: self.runs("standby", pod) or process.poll() is not None, self.logs)

    def run(
        self, command: Sequence[str] | str, *, pod: str = CLIENT, timeout: float = HANG_SECONDS,
        env: Mapping[str, str] | None = None,
    ) -> CompletedProcess[str]:  # fmt: skip
        return super().run(command, pod=pod, timeout=timeout, env=env)

    @property
    def term(self) -> Path:
        """The state's directory."""
        found = terms.current(self.state)
        assert found is not None
        return found

    @property
    def holder(self) -> Pod:
        """The pod that has the epoch."""
        return self.pods[self._holder()]

    @property
    def other(self) -> Pod:
        return next(self.pods[name] for name in PODS if name != self._holder())

    def _holder(self) -> str:
        with contextlib.suppress(OSError, AssertionError):
            file = self.term / RENEWED
            words = file.read_text().split() if file.is_file() else []  # a test may have made it a pipe
            if words[1:] and "/" in words[1] and str(terms.number_of(self.term)) == words[0]:
                return words[1].partition("/")[0]
        return self._leads_to

    def runs(self, program: str, pod: Pod) -> bool:
        """Whether it does: `slurmctld` or `standby`."""
        return pod.run(["pgrep", "-f", f"(libexec/slurmstack|sbin)/{program}( |$)"]).returncode == 0

    def stands_by(self, pod: Pod) -> bool:
        """Whether it waits, and has seen the other one."""
        last = pod.log("standby").rpartition("active: term")[2]
        return "standing by" in last and not self.runs("slurmctld", pod)

    def make_whole(self) -> None:
        """Whatever was ended runs again, as its StatefulSet and kubelet would have it; returns when one waits."""
        for name in PODS:
            pod = self.pods[name]
            if not pod.pid:
                self.remove_pod(name)
                self.start_one(name)
                continue
            self.signal_all(pod, signal.SIGCONT)
            if not self.runs("standby", pod):
                self.start_standby(pod)
            if not self.runs("config-agent", pod):
                self.start_agent(pod)
        wait_until(lambda: "is UP" in self.run("scontrol ping").stdout and self.stands_by(self.other), self.logs)

    def signal_all(self, pod: Pod, number: signal.Signals) -> None:
        """To all processes of a pod's containers, from outside."""
        own = Path(f"/proc/{pod.pid}/ns/pid").readlink()
        for _ in range(3 if number == signal.SIGSTOP else 1):  # those too that are started meanwhile
            for path in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if int(path.name) != pod.pid and (path / "ns/pid").readlink() == own:
                        os.kill(int(path.name), number)
        if number == signal.SIGCONT:
            for process in pod.processes:  # nsenter stops with its child
                process.send_signal(number)

    def accepted_after(self) -> float:
        """Seconds until a job is accepted. A command that asks a controller that was paused is given up after 1 s."""
        return wait_until(lambda: self.run(f"timeout 1 {HOLD}").returncode == 0, self.logs)

    def queue(self) -> list[int]:
        """Numbers of all jobs."""
        done = self.run("squeue --noheader --format=%A")
        assert done.returncode == 0, done.stderr
        return sorted(map(int, done.stdout.split()))

    def files(self) -> dict[str, str]:
        """Name -> digest of all that is on the volume, but the renewals and what is written every five minutes."""
        found = (path for path in sorted(self.state.rglob("*")) if path.is_file())
        paths = [path for path in found if not path.name.startswith((RENEWED, "priority_last_decay_ran"))]
        return {str(path.relative_to(self.state)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

    def _follow(self) -> None:
        """As the label and the Service do."""
        while not self._is_over.wait(0.1):
            if (holder := self._holder()) != self._leads_to and holder in self.pods:
                self._leads_to = holder
                self._write_hosts()

    def _write_hosts(self) -> None:
        for name, pod in list(self.pods.items()):
            at = "127.0.0.1" if name in PODS else self._address(self._leads_to) if self._leads_to else ""
            own = [f"{self._address(other)} {other}" for other in self.pods if other not in PODS or other == name]
            lines = ["127.0.0.1 localhost", *own, *([f"{at} controller-0"] if at else [])]
            with contextlib.suppress(OSError):
                (pod.root / "etc/hosts").write_text("\n".join(lines) + "\n")
                (pod.root / "etc/resolv.conf").write_text("")

    def __exit__(self, *arguments: object) -> None:
        self._is_over.set()
        for process in [process for pod in self.pods.values() for process in pod.processes]:
            process.send_signal(signal.SIGCONT)  # what was stopped does not end
        super().__exit__(*arguments)
