"""Models of everything a user may write in a stack file. Plain values only: nothing here knows Pulumi or Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from config.cluster import ClusterConfig
    from config.errors import ConfigError, Problem
    from config.load import load_config, load_stack_file

__all__ = ["ClusterConfig", "ConfigError", "Problem", "load_config", "load_stack_file"]


def __getattr__(name: str) -> Any:
    """Load a name of `__all__` when it is asked for: the models take a quarter of a second, and `--help` needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from config import cluster, errors, load  # noqa: PLC0415

    return next(getattr(module, name) for module in (cluster, errors, load) if hasattr(module, name))
