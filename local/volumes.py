"""The directories behind static volumes of the local cluster."""

from __future__ import annotations

import secrets

from local import mounts, paths, teardown

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
    if directory.is_dir() and not mounts.mounted_below(directory):
        directory.rename(paths.volumes() / f"{_ASIDE}{namespace}-{secrets.token_hex(4)}")


def discard() -> list[str]:
    """Delete what was set aside, by an earlier call that was cut short too; returns what would not go, in words."""
    gone = [path for path in paths.volumes().glob(f"{_ASIDE}*") if not mounts.mounted_below(path)]
    return [problem for path in gone for problem in teardown.remove_tree(path)]
