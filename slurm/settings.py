"""Settings of slurm.conf and slurmdbd.conf: the user's in place of ours, and what of ours has to be computed.

All others are in `slurm_templates/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.cluster import ClusterConfig
from config.sections.slurm import SettingValue

_OBJECTS = ("nodeset", "partitionname")
"""Keys of lines that are no settings."""


def format_value(value: SettingValue) -> str:
    """A value as slurm.conf has it: YES and NO, lists joined by commas."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, tuple):
        return ",".join(format_value(part) for part in value)
    return str(value)


def merge(defaults: Mapping[str, str], settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """`defaults` with `settings` laid over them; to Slurm `defmempercpu` is the same key as `DefMemPerCPU`."""
    merged = dict(defaults)
    ours = {key.lower(): key for key in defaults}
    for key, value in settings.items():
        merged[ours.get(key.lower(), key)] = format_value(value)
    return merged


def settings_of(text: str) -> dict[str, str]:
    """Every setting of a file as `slurm_templates/` have it: one a line."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, equals, value in pairs if equals and key.lower() not in _OBJECTS}


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """The file with these values in place of its own, each where its key stands; the others come at the end."""
    left = dict(settings)
    lines = []
    for line in text.splitlines():
        key = line.partition("=")[0]
        lines.append(f"{key}={left.pop(key)}" if key in left else line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in left.items())]) + "\n"


def enforcement(config: ClusterConfig) -> tuple[str, ...]:
    """What a job must have (`AccountingStorageEnforce`): as declared, else everything once there are accounts."""
    if config.accounting.enforce is not None:
        return tuple(config.accounting.enforce)
    return ("associations", "limits", "qos", "safe") if config.accounts else ()


def tracked_resources(config: ClusterConfig) -> list[str]:
    """Resources that Slurm tracks only if asked: GPUs, and all that a limit or a weight names.

    sacctmgr refuses a limit of a resource that is not tracked.
    """
    holders = [*config.accounts.values(), *config.qos.values()]
    holders += [association for user in config.users.values() for association in user.accounts.values()]
    limits = (value for holder in holders for _, value in holder if isinstance(value, dict))
    named = {resource for limit in (*limits, config.priority.weights.tres) for resource in limit}
    return sorted({"gres/gpu", *(resource for resource in named if "/" in resource)})
