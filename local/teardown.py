"""Remove what the cluster put on the machine: processes, mounts, network, cgroups, files; in this order.

Deleting takes seconds and may be cut short. So the files first go out of sight, in one step each: no later `up` ever
starts from half of an old cluster (an image without its files, once: CoreDNS never came up).
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

from local import buildah, namespaces, network, paths, processes
from local.errors import LocalError


def stop_everything() -> None:
    """Kill all that is in our cgroups, again and again: a kubelet may start a pod meanwhile."""
    left = processes.kill_all()
    if left:
        raise LocalError(f"these processes cannot be killed: {sorted(left)}", "they may wait for a disk; try again")


def remove_everything() -> list[str]:
    """Take the rest away; returns what would not go, in words."""
    # Not what is mounted in the cache: an image build may be at work there.
    problems = [*namespaces.unmount_all(paths.cluster()), *namespaces.unmount_all(paths.volumes())]
    problems += network.restore_host()
    if paths.cluster().exists():  # else these may be another cluster's
        namespaces.remove_places()
    problems += processes.remove_cgroups("")
    problems += discard_files()
    return problems


def discard_files() -> list[str]:
    """Delete the cluster's files and its volumes; returns what would not go, in words."""
    paths.removed().mkdir(parents=True, exist_ok=True)
    problems = []
    for directory in (paths.cluster(), paths.volumes()):
        # Never delete through a mount that would not go: its content may be somebody else's.
        if namespaces.mounted_below(directory):
            problems.append(f"{directory}: something is still mounted in it")
        elif directory.exists():
            directory.rename(paths.removed() / f"{directory.name}-{secrets.token_hex(4)}")
    return problems + remove_tree(paths.removed())


def finish_removal() -> list[str]:
    """Complete a `down` that was cut short while it deleted; does nothing where there was none."""
    return discard_files() if paths.removed().exists() else []


def purge() -> list[str]:
    """Remove the caches too, and our directories when nothing else is in them."""
    with contextlib.suppress(OSError):
        buildah.SHARED_CACHE.rmdir()
    problems = namespaces.unmount_all(paths.root())
    if not namespaces.mounted_below(paths.cache()):
        problems += remove_tree(paths.cache())
    if paths.root().is_dir() and not any(paths.root().iterdir()):
        paths.root().rmdir()
    return problems


def remove_tree(directory: Path) -> list[str]:
    """Delete a directory; returns what would not go, in words."""
    problems: list[str] = []

    def on_error(_function: object, path: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            problems.append(f"{path}: {info[1]}")

    shutil.rmtree(directory, onerror=on_error)
    return problems


_ASIDE = ".removed-"
"""How directories begin that are on their way out. No namespace is called so."""


def remaining() -> list[str]:
    """Volumes that have files: `slurm/jail`."""
    found = [path for path in paths.volumes().glob("*/*") if not path.parent.name.startswith(_ASIDE)]
    return sorted(str(path.relative_to(paths.volumes())) for path in found)


def set_aside(namespace: str) -> None:
    """Take the files of a namespace's volumes out of sight in one step: nobody takes half of a jail for a whole.

    Pods that are ending keep what they have open. Where somebody has mounted something, all of it stays.
    """
    directory = paths.volumes() / namespace
    if directory.is_dir() and not namespaces.mounted_below(directory):
        directory.rename(paths.volumes() / f"{_ASIDE}{namespace}-{secrets.token_hex(4)}")


def discard() -> list[str]:
    """Delete what was set aside, by an earlier call that was cut short too; returns what would not go, in words."""
    gone = [path for path in paths.volumes().glob(f"{_ASIDE}*") if not namespaces.mounted_below(path)]
    return [problem for path in gone for problem in remove_tree(path)]
