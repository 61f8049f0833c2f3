"""The `slurmstack` command."""
