"""Fixtures for tests in guest machines, which build the images first (cached afterwards)."""

from tests.slurm.conftest import one_version, slurm_version

__all__ = ["one_version", "slurm_version"]
