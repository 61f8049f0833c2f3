"""Figures for Prometheus: Slurm's own names where slurmctld gives none itself, and ours."""
