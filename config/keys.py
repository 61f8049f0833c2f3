"""Keys of a stack file that look like ours and would not be read as ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from config.cluster import ClusterConfig
from config.errors import ConfigError, Problem, nearest

PROJECT = "slurmstack"
"""Prefix of our keys in a stack file: the name of the Pulumi project."""

_OTHERS = frozenset({"pulumi", "kubernetes", "nebius", "random"})
"""Pulumi itself and the providers of this program, whose keys may be named like sections of ours (`kubernetes:cluster`
chooses a cluster of the kubeconfig)."""

_NEAR = 0.7
"""Likeness from which a prefix is ours misspelt: `slurmstck` has 0.95, `localstack`, the nearest real one, 0.6."""


def check_keys(keys: Iterable[object], *, beside_config: Iterable[object] = ()) -> None:
    """Raise ConfigError if a key was surely meant for us and would be ignored, as if its section were not there.

    `keys` are those below `config:`, `beside_config` those at the margin of the stack file.
    """
    problems = [*_below_config(keys), *_at_the_margin(beside_config)]
    if problems:
        raise ConfigError(problems)


def _below_config(keys: Iterable[object]) -> Iterator[Problem]:
    for key in map(str, keys):
        prefix, colon, rest = key.partition(":")
        if colon and (prefix == PROJECT or prefix in _OTHERS):
            continue
        if not colon:
            message = f"has no prefix and would be overlooked: {_instead(key)}"
        elif _is_near(prefix):
            message = f"{prefix!r} is not {PROJECT!r}: {_instead(rest)}"
        elif rest in ClusterConfig.model_fields:
            message = f"is a section of {PROJECT} with another prefix: {_instead(rest)}"
        else:
            continue
        yield Problem(key, message)


def _at_the_margin(keys: Iterable[object]) -> Iterator[Problem]:
    for key in map(str, keys):
        if key in ClusterConfig.model_fields or _is_near(key.partition(":")[0]):
            message = f"stands beside `config:`, and would be overlooked; indent it below that: {_instead(key)}"
            yield Problem(key, message)


def _is_near(prefix: str) -> bool:
    folded = prefix.strip().lower()
    return folded.startswith("slurm") or difflib.SequenceMatcher(None, folded, PROJECT).ratio() >= _NEAR


def _instead(key: str) -> str:
    """What to write for a key or the rest of one, as far as it can be guessed."""
    name = key.strip()
    if name.lower().startswith(PROJECT):
        name = name[len(PROJECT) :].lstrip(":./_- ")
        if not name:
            return f"give each section a key of its own, for example `{PROJECT}:worker_nodes:`"
    if name in ClusterConfig.model_fields:
        return f"write `{PROJECT}:{name}:`"
    guess = nearest(name, ClusterConfig.model_fields)
    if guess is None:
        return f"write `{PROJECT}:` and the name of a section, or the provider's name before it if it is for a provider"
    return f"did you mean `{PROJECT}:{guess}:`? (a key for a provider begins with the provider's name)"
