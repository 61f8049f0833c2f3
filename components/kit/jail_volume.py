"""The jail's volume, with the root file system in it that pods lead into, and that of homes where they have one."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi_kubernetes as k8s

from components.kit.volumes import DataVolume
from components.kit.workload import claim_volume, mount
from config.sections.storage import SHARED
from slurm.names import HOMES, HOMES_ENV, JAIL_DIR, JAIL_ROOT, JAIL_ROOTS

SHARED_DIRECTORY = "/shared"
"""Where the directories of all roots lie in a pod that leads into a named one: outside it, as other mounts do. Kubelet
would mount them in it by a path, in which root in the jail may have put a link to a directory of the container."""

_HOME = "home"
_HOMES_DIRECTORY = f"{SHARED_DIRECTORY}/{_HOME}"


@dataclass(frozen=True, kw_only=True)
class JailVolume(DataVolume):
    """Without a name the root is the volume itself, as all clusters have it that never asked for another one."""

    root: str | None
    homes: DataVolume | None = None
    """The volume of homes; None where they are in the jail's."""

    @property
    def env(self) -> dict[str, str]:
        """What a program that uses it is told."""
        root = {JAIL_ROOT: self.root} if self.root is not None else {}
        return {**super().env, **root, **({HOMES_ENV: _HOMES_DIRECTORY} if self.homes is not None else {})}

    def volumes(self) -> list[k8s.core.v1.VolumeArgs]:
        """Those of a pod."""
        jail = claim_volume("jail", self.claim.metadata.name)
        return [jail, *([claim_volume(HOMES, self.homes.claim.metadata.name)] if self.homes is not None else [])]

    def whole(self) -> k8s.core.v1.VolumeMountArgs:
        """For what fills roots, and writes to all of them."""
        return mount("jail", JAIL_DIR)

    def of_homes(self, *, read_only: bool | None = None) -> list[k8s.core.v1.VolumeMountArgs]:
        """The volume of homes, where they have one."""
        return [mount(HOMES, _HOMES_DIRECTORY, read_only=read_only)] if self.homes is not None else []

    def mounts(self) -> list[k8s.core.v1.VolumeMountArgs]:
        """The root, for what leads into it."""
        if self.root is None:
            return [self.whole(), *self.of_homes()]
        inside = f"{JAIL_ROOTS}/{self.root}/root"
        return [
            k8s.core.v1.VolumeMountArgs(name="jail", mount_path=JAIL_DIR, sub_path=inside),
            *(
                k8s.core.v1.VolumeMountArgs(name="jail", mount_path=f"{SHARED_DIRECTORY}/{name}", sub_path=name)
                for name in self._in_jail
            ),
            *self.of_homes(),
        ]

    def shared(self) -> list[dict[str, str]]:
        """What is bound into the root: where it lies in the pod, and the path in the jail."""
        found = [] if self.root is None else [_bound(name) for name in self._in_jail]
        if self.homes is not None:
            filesystem = self.homes.filesystem
            found.append(_bound(_HOME) | ({"filesystem": filesystem} if filesystem else {}))
        return found

    @property
    def _in_jail(self) -> list[str]:
        """What roots share of the jail's own volume."""
        return [name for name in SHARED if name != _HOME or self.homes is None]


def _bound(name: str) -> dict[str, str]:
    return {"source": f"{SHARED_DIRECTORY}/{name}", "path": f"/{name}"}
