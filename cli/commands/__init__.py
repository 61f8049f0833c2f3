"""The commands of `slurmstack`, one file for each group; loaded when they are called."""
