"""Tests with real Slurm daemons."""
