"""Backups: programs that save a cluster's state, database, keys and jail with restic, and put them back."""
