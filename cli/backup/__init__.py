"""Backups: Jobs from what the stack has made for them, and the order of a restore."""
