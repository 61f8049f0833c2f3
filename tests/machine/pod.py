"""Pods of a guest machine: what kubelet and containerd do with one, by runc and the same settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.machine.machine import Machine
from tests.machine.oci import PATH, ContainerSpec, Sandbox, config

NETWORK = "10.244.0"
BRIDGE = f"{NETWORK}.1"
DIRECTORY = "/var/lib/pods"
CGROUP_ROOT = "/sys/fs/cgroup"

_START_POD = r"""
set -e
mkdir -p "$DIRECTORY/shm" "$DIRECTORY/volumes"
mount -t tmpfs -o nosuid,noexec,nodev,mode=1777,size=65536k shm "$DIRECTORY/shm"
printf '%s\n' "$NAME" > "$DIRECTORY/hostname"
: > "$DIRECTORY/resolv.conf"
touch "$DIRECTORY/../hosts"
ln -f "$DIRECTORY/../hosts" "$DIRECTORY/hosts"
parent=/sys/fs/cgroup
for part in $(echo "$CGROUP" | tr / ' '); do
  parent=$parent/$part
  mkdir -p $parent
  echo '+cpuset +cpu +io +memory +hugetlb +pids' > $parent/cgroup.subtree_control
done
[ -z "$MEMORY" ] || echo "$MEMORY" > $parent/memory.max
if ! [ -e /sys/class/net/br0 ]; then
  /bin/ip link add br0 address 02:00:0a:f4:00:01 type bridge
  /bin/ip addr add "$BRIDGE/24" dev br0
  /bin/ip link set br0 up
fi
hold='hostname "$NAME"; /bin/ip link set lo up; exec sleep 100000000'
setsid unshare -n -i -u sh -c "$hold" </dev/null >/dev/null 2>&1 &
pid=$!
while [ "$(readlink /proc/$pid/ns/uts)" = "$(readlink /proc/self/ns/uts)" ]; do sleep 0.02; done
for setting in $SYSCTLS; do
  nsenter -t $pid -n -i -u sh -c 'echo "$2" > "/proc/sys/$(echo "$1" | tr . /)"' - "${setting%%=*}" "${setting#*=}"
done
/bin/ip link add "p$NUMBER" type veth peer name eth0 netns $pid
/bin/ip link set "p$NUMBER" master br0 up
nsenter -t $pid -n sh -ec "
  /bin/ip addr add $ADDRESS/24 dev eth0
  /bin/ip link set eth0 up
  /bin/ip route add default via $BRIDGE"
echo $pid
"""

_START_CONTAINER = r"""
set -e
mkdir -p "$HOME_DIR/upper" "$HOME_DIR/work" "$HOME_DIR/root" "$LOG"
cat > "$HOME_DIR/config.json"
: > "$LOG/termination"; chmod 666 "$LOG/termination"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$HOME_DIR/upper,workdir=$HOME_DIR/work" "$HOME_DIR/root"
setsid sh -c '
  runc run --keep --pid-file "$HOME_DIR/pid" --bundle "$HOME_DIR" "$ID"
  echo $? > "$HOME_DIR/exit"' </dev/null >"$LOG/log" 2>&1 &
while ! [ -s "$HOME_DIR/pid" ] && ! [ -e "$HOME_DIR/exit" ]; do sleep 0.02; done
"""

_KILL_ORPHANS = r"""
for pid in $(find "$CGROUP" -name cgroup.procs -exec cat {} +); do
  [ "$(awk '/^PPid:/ {print $2}' /proc/$pid/status)" != 1 ] || kill -9 $pid -$pid
done
"""
"""Ends what `runc exec` has started and, as it was killed itself, has left to the machine's first process."""


@dataclass
class Container:
    """One container; it is started when it is made."""

    machine: Machine
    spec: ContainerSpec
    identifier: str
    directory: str
    log_directory: str
    cgroup: str
    """In the machine, with `/sys/fs/cgroup`."""

    @property
    def pid(self) -> int:
        """Its first process, as the machine counts."""
        return int(self.machine.get(f"{self.directory}/pid"))

    @property
    def root(self) -> str:
        """Its root file system, as the machine sees it; without its volumes."""
        return f"{self.directory}/root"

    def exec(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float = 60,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        user: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it as `kubectl exec` does: a process beside the first, with the same rights.

        A string goes through its shell. Raises TimeoutExpired, and nothing of the command is left then.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        options = [f"--env={key}={value}" for key, value in {"PATH": PATH, **(env or {})}.items()]
        options += [f"--user={user}"] if user else []
        try:
            return self.machine.run(["runc", "exec", *options, self.identifier, *argv], timeout=timeout, stdin=stdin)
        except subprocess.TimeoutExpired:
            self.machine.run(_KILL_ORPHANS, env={"CGROUP": self.cgroup})
            raise

    def look(self, command: Sequence[str] | str, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in its mounts, processes and network, but as root of the machine and outside of its limits.

        It takes a tenth of the time of `exec`, and what is looked at does not see another process in its control group.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "-i", "/usr/bin/env", "-i", f"PATH={PATH}"]
        return self.machine.run([*inside, *argv], timeout=timeout)

    def logs(self) -> str:
        """What its first process and those that write to the same place have written so far."""
        return self.machine.get(f"{self.log_directory}/log").decode(errors="replace")

    @property
    def exit_status(self) -> int | None:
        """Of its first process, with 128 and the signal's number for one that was killed; None while it runs."""
        found = self.machine.run(f"cat {self.directory}/exit").stdout
        return int(found) if found.strip() else None

    def wait(self, timeout: float = 60) -> int:
        """Wait for its end; returns the exit status."""
        script = f"while ! [ -s {self.directory}/exit ]; do sleep 0.05; done"
        self.machine.run(script, timeout=timeout, check=True)
        status = self.exit_status
        assert status is not None
        return status

    def read(self, file: str) -> str:
        """A file of its control group: `memory.events`."""
        return self.machine.run(["cat", f"{self.cgroup}/{file}"], check=True).stdout

    def processes(self) -> list[int]:
        """All its processes, in control groups below its own, too, as the machine counts them."""
        found = self.machine.run(f"find {self.cgroup} -name cgroup.procs -exec cat {{}} +").stdout
        return [int(pid) for pid in found.split()]

    def remove(self) -> None:
        """End it and forget it, with its control group and its root file system."""
        script = 'runc delete --force "$1"; umount -l "$0/root"; rm -rf "$0"'
        self.machine.run(["sh", "-c", script, self.directory, self.identifier])


@dataclass
class Pod:
    """Namespaces and a control group that containers share. Others find it by its name: `Pods` writes all hosts."""

    machine: Machine
    name: str
    address: str
    sandbox: Sandbox
    containers: dict[str, Container] = field(default_factory=dict)

    def start(self, spec: ContainerSpec) -> Container:
        """Start a container; returns when runc has started it, or has failed, as its log says then.

        One of this name that there was before is removed: a restart.
        """
        if spec.name in self.containers:
            self.containers.pop(spec.name).remove()
        identifier = f"{self.name}-{spec.name}"
        directory = f"{self.sandbox.directory}/containers/{spec.name}"
        log = f"{self.sandbox.directory}/log-{spec.name}"
        env = {"ID": identifier, "HOME_DIR": directory, "LOG": log, "LOWER": self.machine.lower(spec.image)}
        content = json.dumps(config(spec, self.sandbox, f"{directory}/root", identifier))
        self.machine.run(_START_CONTAINER, env=env, stdin=content, timeout=120, check=True)
        container = Container(
            self.machine, spec, identifier, directory, log, f"{CGROUP_ROOT}/{self.sandbox.cgroup}/{identifier}"
        )
        self.containers[spec.name] = container
        return container

    def remove(self) -> None:
        """End everything of it at once, as when its machine fails."""
        for container in self.containers.values():
            container.remove()
        self.containers.clear()
        sandbox = self.sandbox
        script = (
            'kill -9 "$1"; umount -l "$0/shm"; for volume in "$0"/volumes/*; do umount -l "$volume"; done; rm -rf "$0"'
        )
        self.machine.run(["sh", "-c", script, sandbox.directory, str(sandbox.pid)])
        self.machine.run(["rmdir", f"{CGROUP_ROOT}/{sandbox.cgroup}"])


@dataclass
class Pods:
    """All pods of a machine."""

    machine: Machine
    by_name: dict[str, Pod] = field(default_factory=dict)
    _number: int = 1

    def add(
        self,
        name: str,
        *,
        memory_mib: int | None = None,
        quality: str = "burstable",
        sysctls: Mapping[str, str] | None = None,
    ) -> Pod:
        """A pod without containers. `memory_mib`: the sum of its containers' limits, where all have one."""
        self._number += 1
        directory = f"{DIRECTORY}/{name}"
        cgroup = "/".join(filter(None, ("kubepods", quality, f"pod{name}")))
        address = f"{NETWORK}.{self._number}"
        env = {
            "NAME": name, "DIRECTORY": directory, "CGROUP": cgroup, "ADDRESS": address, "NUMBER": str(self._number),
            "MEMORY": str(memory_mib * 2**20) if memory_mib else "", "BRIDGE": BRIDGE,
            "SYSCTLS": " ".join(f"{key}={value}" for key, value in (sysctls or {}).items()),
        }  # fmt: skip
        pid = int(self.machine.run(_START_POD, env=env, check=True).stdout)
        sandbox = Sandbox(
            hostname=name, pid=pid, cgroup=cgroup, directory=directory, machine_mib=self.machine.memory_mib
        )
        pod = Pod(self.machine, name, address, sandbox)
        self.by_name[name] = pod
        self.write_hosts(self.by_name.values())
        return pod

    def remove(self, name: str) -> None:
        """End a pod; its address is not given again."""
        self.by_name.pop(name).remove()
        self.write_hosts(self.by_name.values())

    def write_hosts(self, pods: Iterable[Pod]) -> None:
        """Let all pods find each other by name: one file, which is in all of them."""
        lines = ["127.0.0.1 localhost", *(f"{pod.address} {pod.name}" for pod in pods)]
        self.machine.run(["sh", "-c", 'cat > "$0"', f"{DIRECTORY}/hosts"], stdin="\n".join(lines) + "\n", check=True)
