"""Models of everything a user may write in a stack file. Plain values only: nothing here knows Pulumi or Kubernetes."""

from config.cluster import ClusterConfig
from config.errors import ConfigError, Problem
from config.load import load_config, load_stack_file

__all__ = ["ClusterConfig", "ConfigError", "Problem", "load_config", "load_stack_file"]
