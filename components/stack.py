"""The stack's configuration as Pulumi has it."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env

from config import ClusterConfig, ConfigError, Problem, load_config
from config.load import PROJECT


def stack_config() -> ClusterConfig:
    """Every `slurmstack:` key of the current stack, checked as a whole. Raises ConfigError with all problems.

    Pulumi's `Config` can only be asked for keys that one knows; a misspelt section would be overlooked. So the keys are
    taken from the runtime's own table, and only the values from `Config`.
    """
    prefix = f"{PROJECT}:"
    keys = {**get_config_env(), **CONFIG.get()}
    names = sorted(key[len(prefix) :] for key in keys if key.startswith(prefix))
    reader = pulumi.Config(PROJECT)
    sections: dict[str, Any] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            sections[name] = reader.get_object(name)
        except pulumi.ConfigTypeError:
            problems.append(Problem(where=name, message=f"{reader.get(name)!r} is not a map of keys to values"))
    if problems:
        raise ConfigError(problems)
    return load_config(sections)
