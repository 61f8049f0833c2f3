"""What is wrong with a cluster that runs: `rules` say what follows from a Snapshot (cli/status/snapshot.py)."""
