"""Starts pods of a guest machine from the specifications that the program registers, as a kubelet does.

So a test has the capabilities, volumes and limits of the product and none of its own. Probes, hooks and restarts are
left out: a test wants to see what happens without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from config.base import parse_bytes
from tests.machine.oci import Bind, ContainerSpec
from tests.machine.pod import Pod, Pods

_MIB = 2**20

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


@dataclass
class Kubelet:
    """What the cluster around the machine would bring to its pods, by name."""

    pods: Pods
    config_maps: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    """One that is not here is empty, as are projected volumes."""
    secrets: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """Claim -> directory of the machine."""
    namespace: str = "slurm"

    def start(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        only: Sequence[str] = (),
        cpuset: str = "",
        writable_cgroups: bool = False,
    ) -> Pod:
        """Start a pod with its containers in their order, `only` some of them; ordinary init containers first end.

        `cpuset`, `writable_cgroups`: for the containers that are no sidecars.
        """
        ordinary = [*spec["containers"]]
        containers = [one for one in (*spec.get("initContainers", ()), *ordinary) if not only or one["name"] in only]
        limits = [_memory(one) for one in containers]
        total = None if None in limits else sum(filter(None, limits))
        sysctls = spec.get("securityContext", {}).get("sysctls", ())
        pod = self.pods.add(name, memory_mib=total, sysctls={one["name"]: one["value"] for one in sysctls})
        volumes = {one["name"]: self._volume(pod, one) for one in spec.get("volumes", ())}
        for one in containers:
            own = container_spec(one, volumes, self._env(one, name), cpuset=cpuset if one in ordinary else "")
            started = pod.start(replace(own, writable_cgroups=writable_cgroups and one in ordinary))
            if one not in ordinary and one.get("restartPolicy") != "Always":
                status = started.wait(300)
                assert status == 0, f"{one['name']} of {name} failed with {status}:\n{started.logs()}"
        return pod

    def _env(self, container: Mapping[str, Any], pod: str) -> dict[str, str]:
        fields = {"metadata.namespace": self.namespace, "metadata.name": pod}
        return {
            one["name"]: str(one["value"]) if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container.get("env", ())
        }

    def _volume(self, pod: Pod, volume: Mapping[str, Any]) -> str:
        """Make a volume; returns its directory in the machine."""
        directory = f"{pod.sandbox.directory}/volumes/{volume['name']}"
        match volume:
            case {"persistentVolumeClaim": claim}:
                return self.claims[claim["claimName"]]
            case {"emptyDir": {"medium": "Memory", "sizeLimit": str(limit)}}:
                self._make(pod, directory, f"mode=777,size={parse_bytes(limit)}", "777")
            case {"secret": secret}:
                self._publish(pod, directory, self.secrets[secret["secretName"]], secret)
            case {"configMap": config_map}:
                self._publish(pod, directory, self.config_maps.get(config_map["name"], {}), config_map)
            case _:
                self._make(pod, directory, "", "777")
        return directory

    def _make(self, pod: Pod, directory: str, tmpfs: str, mode: str) -> None:
        pod.machine.run(["sh", "-c", _VOLUME, directory, tmpfs, mode], check=True)

    def _publish(self, pod: Pod, directory: str, content: Mapping[str, str | bytes], source: Mapping[str, Any]) -> None:
        names = {one["key"]: one["path"] for one in source.get("items", ())} or {name: name for name in content}
        self._make(pod, directory, "mode=755" if "secretName" in source else "", "755")
        for key, path in names.items():
            pod.machine.put(f"{directory}/..1/{path}", content[key], mode=source.get("defaultMode", 0o644))
        pod.machine.run(["sh", "-c", _PUBLISH, directory], check=True)


def container_spec(
    container: Mapping[str, Any], volumes: Mapping[str, str], env: Mapping[str, str], *, cpuset: str = ""
) -> ContainerSpec:
    """What a container of a pod's specification is to runc."""
    context = container.get("securityContext", {})
    request = container.get("resources", {}).get("requests", {}).get("cpu", "0")
    role, _, tag = container["image"].rpartition("/")[2].partition(":")
    return ContainerSpec(
        name=container["name"],
        image=f"{role}-{tag.partition('-')[0]}",
        command=tuple(container["command"]),
        env=env,
        capabilities=tuple(context.get("capabilities", {}).get("add", ())),
        binds=tuple(
            Bind(source=volumes[one["name"]], target=one["mountPath"], read_only=one.get("readOnly", False))
            for one in container.get("volumeMounts", ())
        ),
        memory_mib=_memory(container),
        cpus=float(request.removesuffix("m")) / 1000 if request.endswith("m") else float(request),
        cpuset=cpuset,
        read_only=context.get("readOnlyRootFilesystem", False),
        no_new_privileges=not context.get("allowPrivilegeEscalation", True),
        user=(context.get("runAsUser", 0), context.get("runAsGroup", 0)),
    )


def _memory(container: Mapping[str, Any]) -> int | None:
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    return None if limit is None else parse_bytes(limit) // _MIB
