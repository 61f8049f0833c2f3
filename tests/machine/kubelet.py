"""Starts pods of a guest machine from the specifications that the program registers, as kubelet and containerd do.

So a test has the capabilities, volumes and limits of the product and none of its own. Probes, hooks and restarts are
left out: a test wants to see what happens without them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from config.base import parse_bytes
from tests.machine.machine import Machine
from tests.machine.oci import PATH, Sandbox, config, image_of, memory_of
from tests.slurm.pod import wait_until

NAMESPACE = "slurm"
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
mount -t overlay overlay -o "lowerdir=/images/$IMAGE,upperdir=$HOME_DIR/upper,workdir=$HOME_DIR/work" "$HOME_DIR/root"
setsid sh -c '
  runc run --keep --pid-file "$HOME_DIR/pid" --bundle "$HOME_DIR" "$ID"
  echo $? > "$HOME_DIR/exit"' </dev/null >"$LOG/log" 2>&1 &
while ! [ -s "$HOME_DIR/pid" ] && ! [ -e "$HOME_DIR/exit" ]; do sleep 0.02; done
"""

_VOLUME = r"""
set -e
mkdir -p "$0"
[ -z "$1" ] || mount -t tmpfs -o "$1" tmpfs "$0"
chmod "$2" "$0"
"""

_PUBLISH = r"""
set -e
cd "$0"
ln -sfn ..1 ..data
for file in ..1/*; do [ ! -e "$file" ] || ln -sf "..data/${file##*/}" "${file##*/}"; done
"""
"""Files of a ConfigMap or a Secret are links through `..data`, which kubelet changes all at once."""

_REMOVE = r"""
for container in "$0"/containers/*; do
  runc delete --force "$2-${container##*/}"; umount -l "$container/root"
done
kill -9 "$1"; umount -l "$0/shm"; for volume in "$0"/volumes/*; do umount -l "$volume"; done; rm -rf "$0"
rmdir "$3"
"""


@dataclass
class Container:
    """A container that has been started."""

    machine: Machine
    identifier: str
    directory: str
    log: str
    cgroup: str
    """In the machine, with `/sys/fs/cgroup`."""

    @property
    def pid(self) -> int:
        """Its first process, as the machine counts."""
        return int(self.machine.get(f"{self.directory}/pid"))

    def exec(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in it as `kubectl exec` does: a process beside the first, with the same rights."""
        return self.machine.run(["runc", "exec", f"--env=PATH={PATH}", self.identifier, *command])

    def look(self, command: Sequence[str] | str, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in its mounts, processes and network, but as root of the machine and outside of its limits.

        It takes a tenth of the time of `exec`, and what is looked at does not see another process in its control group.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "-i", "/usr/bin/env", "-i", f"PATH={PATH}"]
        return self.machine.run([*inside, *argv], timeout=timeout)

    def logs(self) -> str:
        """What its first process and those that write to the same place have written so far."""
        return self.machine.get(self.log)

    @property
    def exit_status(self) -> int | None:
        """Of its first process, with 128 and the signal's number for one that was killed; None while it runs."""
        found = self.machine.run(f"cat {self.directory}/exit").stdout
        return int(found) if found.strip() else None

    def read(self, file: str) -> str:
        """A file of its control group: `memory.events`."""
        return self.machine.get(f"{self.cgroup}/{file}")


@dataclass
class Pod:
    """Namespaces and a control group that containers share. Others find it by its name."""

    sandbox: Sandbox
    address: str
    containers: dict[str, Container] = field(default_factory=dict)


@dataclass
class Kubelet:
    """All pods of a machine, and what the cluster around it would bring to them, by name."""

    machine: Machine
    config_maps: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    """One that is not here is empty, as are projected volumes."""
    secrets: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """Claim -> directory of the machine."""
    pods: dict[str, Pod] = field(default_factory=dict)
    _number: int = 1

    def start(self, name: str, spec: Mapping[str, Any], *, writable_cgroups: bool = False) -> Pod:
        """Start a pod with its containers in their order; ordinary init containers first end.

        `writable_cgroups`: for the containers that are no sidecars.
        """
        pod = self._sandbox(name, spec)
        volumes = {one["name"]: self._volume(pod, one) for one in spec.get("volumes", ())}
        for one in spec.get("initContainers", ()):
            started = self._start(pod, one, volumes, writable_cgroups=False)
            if one.get("restartPolicy") != "Always":
                wait_until(lambda: started.exit_status is not None, started.logs, 300)  # noqa: B023
                assert started.exit_status == 0, started.logs()
        for one in spec["containers"]:
            self._start(pod, one, volumes, writable_cgroups=writable_cgroups)
        return pod

    def remove(self, name: str) -> None:
        """End everything of a pod at once, as when its machine fails; its address is not given again."""
        sandbox = self.pods.pop(name).sandbox
        cgroup = f"{CGROUP_ROOT}/{sandbox.cgroup}"
        self.machine.run(["sh", "-c", _REMOVE, sandbox.directory, str(sandbox.pid), name, cgroup], timeout=120)
        self._write_hosts()

    def _sandbox(self, name: str, spec: Mapping[str, Any]) -> Pod:
        limits = [memory_of(one) for one in (*spec.get("initContainers", ()), *spec["containers"])]
        sysctls = spec.get("securityContext", {}).get("sysctls", ())
        self._number += 1
        address, directory = f"{NETWORK}.{self._number}", f"{DIRECTORY}/{name}"
        cgroup = f"kubepods/burstable/pod{name}"
        env = {
            "NAME": name, "DIRECTORY": directory, "CGROUP": cgroup, "ADDRESS": address, "NUMBER": str(self._number),
            "MEMORY": "" if None in limits else str(sum(filter(None, limits))), "BRIDGE": BRIDGE,
            "SYSCTLS": " ".join(f"{one['name']}={one['value']}" for one in sysctls),
        }  # fmt: skip
        pid = int(self.machine.run(_START_POD, env=env, check=True).stdout)
        machine_mib = self.machine.memory_mib
        sandbox = Sandbox(hostname=name, pid=pid, cgroup=cgroup, directory=directory, machine_mib=machine_mib)
        self.pods[name] = Pod(sandbox, address)
        self._write_hosts()
        return self.pods[name]

    def _write_hosts(self) -> None:
        """Let all pods find each other by name: one file, which is in all of them."""
        lines = ["127.0.0.1 localhost", *(f"{pod.address} {name}" for name, pod in self.pods.items())]
        self.machine.run(["sh", "-c", 'cat > "$0"', f"{DIRECTORY}/hosts"], stdin="\n".join(lines) + "\n", check=True)

    def _start(
        self, pod: Pod, container: Mapping[str, Any], volumes: Mapping[str, str], *, writable_cgroups: bool
    ) -> Container:
        """Start a container; returns when runc has started it, or has failed, as its log says then."""
        name, sandbox = container["name"], pod.sandbox
        identifier = f"{sandbox.hostname}-{name}"
        directory, log = f"{sandbox.directory}/containers/{name}", f"{sandbox.directory}/log-{name}"
        fields = {"metadata.namespace": NAMESPACE, "metadata.name": sandbox.hostname}
        variables = {
            one["name"]: str(one["value"]) if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container.get("env", ())
        }
        content = config(
            container, sandbox, f"{directory}/root", volumes=volumes, env=variables, writable_cgroups=writable_cgroups
        )
        env = {"ID": identifier, "HOME_DIR": directory, "LOG": log, "IMAGE": image_of(container)}
        self.machine.run(_START_CONTAINER, env=env, stdin=json.dumps(content), timeout=120, check=True)
        cgroup = f"{CGROUP_ROOT}/{sandbox.cgroup}/{identifier}"
        pod.containers[name] = Container(self.machine, identifier, directory, f"{log}/log", cgroup)
        return pod.containers[name]

    def _volume(self, pod: Pod, volume: Mapping[str, Any]) -> str:
        """Make a volume; returns its directory in the machine."""
        directory = f"{pod.sandbox.directory}/volumes/{volume['name']}"
        match volume:
            case {"persistentVolumeClaim": claim}:
                return self.claims[claim["claimName"]]
            case {"emptyDir": {"medium": "Memory", "sizeLimit": str(limit)}}:
                self._make(directory, f"mode=777,size={parse_bytes(limit)}", "777")
            case {"secret": secret}:
                self._publish(directory, self.secrets[secret["secretName"]], secret)
            case {"configMap": config_map}:
                self._publish(directory, self.config_maps.get(config_map["name"], {}), config_map)
            case _:
                self._make(directory, "", "777")
        return directory

    def _make(self, directory: str, tmpfs: str, mode: str) -> None:
        self.machine.run(["sh", "-c", _VOLUME, directory, tmpfs, mode], check=True)

    def _publish(self, directory: str, content: Mapping[str, str | bytes], source: Mapping[str, Any]) -> None:
        names = {one["key"]: one["path"] for one in source.get("items", ())} or {name: name for name in content}
        self._make(directory, "mode=755" if "secretName" in source else "", "755")
        for key, path in names.items():
            self.machine.put(f"{directory}/..1/{path}", content[key], mode=source.get("defaultMode", 0o644))
        self.machine.run(["sh", "-c", _PUBLISH, directory], check=True)
