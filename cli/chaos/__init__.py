"""Faults on purpose, under a stream of small jobs, and whether each of these has run exactly once."""
