"""Tests of nodes that take minutes and so run as Slurm jobs on idle nodes: bandwidths, NCCL."""
