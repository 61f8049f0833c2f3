"""What a machine does when it first starts: mount the shared file systems, let administrators in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from components.clouds.nebius.filesystems import mount_path

ADMINISTRATOR = "admin"
"""User of the machines for whom the administrators' keys are."""


def cloud_init(tags: Sequence[str], ssh_keys: Sequence[str]) -> str | None:
    """The user data of a machine; None if it has nothing to do."""
    document: dict[str, Any] = {}
    if ssh_keys:
        document["users"] = [
            {
                "name": ADMINISTRATOR,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "shell": "/bin/bash",
                "ssh_authorized_keys": list(ssh_keys),
            }
        ]
    if tags:
        units = [mount_unit(tag) for tag in tags]
        document["write_files"] = [
            {"path": f"/etc/systemd/system/{unit}", "content": _unit_file(tag)}
            for unit, tag in zip(units, tags, strict=True)
        ]
        # One command for all: a file system that cannot be mounted keeps neither the others nor the machine from
        # starting, and pods that need it say so.
        document["runcmd"] = [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", *units]]
    if not document:
        return None
    return "#cloud-config\n" + yaml.dump(document, Dumper=_Blocks, sort_keys=True, width=1000)


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as such, so that people can read them in a preview."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text, as a block if it has several lines."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Blocks.add_representer(str, _Blocks.represent_str)


def mount_unit(tag: str) -> str:
    """Name of the unit that mounts a file system; systemd derives it from the path, in which `-` stands for `/`."""
    escaped = mount_path(tag).strip("/").replace("-", "\\x2d").replace("/", "-")
    return f"{escaped}.mount"


def _unit_file(tag: str) -> str:
    """Mounted at each start, before the kubelet starts pods that use it.

    cloud-init's own `mounts` passes over what is no device file, and a virtiofs tag is none.
    """
    return (
        "[Unit]\n"
        f"Description=Shared file system {tag}\n"
        "Before=kubelet.service\n"
        "\n"
        "[Mount]\n"
        f"What={tag}\n"
        f"Where={mount_path(tag)}\n"
        "Type=virtiofs\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
