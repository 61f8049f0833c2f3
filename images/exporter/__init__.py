"""Metrics for Prometheus, by Slurm's own names and by ours."""
