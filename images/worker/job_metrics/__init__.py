"""Figures of the jobs of a node for Prometheus, in the names that `jobstats` reads."""
