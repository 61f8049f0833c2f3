"""Backups: one program that saves a cluster's state, database, keys and jail with restic, and puts them back."""
