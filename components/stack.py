"""The stack's configuration as Pulumi has it."""

from __future__ import annotations

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret

from config import ClusterConfig, ConfigError, load_config
from config.load import PROJECT, check_keys, encrypted_problem, plain


def stack_config() -> ClusterConfig:
    """Every `slurmstack:` key of the current stack, checked as a whole. Raises ConfigError with all problems.

    Pulumi's `Config` can only be asked for keys that one knows; a misspelt section would be overlooked. So the keys are
    taken from the runtime's own table, and only the values from `Config`.
    """
    prefix = f"{PROJECT}:"
    keys = {**get_config_env(), **CONFIG.get()}
    check_keys(keys)
    names = sorted(key[len(prefix) :] for key in keys if key.startswith(prefix))
    encrypted = [name for name in names if is_config_secret(prefix + name)]
    if encrypted:
        raise ConfigError(encrypted_problem(name) for name in encrypted)
    reader = pulumi.Config(PROJECT)
    return load_config({name: plain(reader.get(name)) for name in names})
