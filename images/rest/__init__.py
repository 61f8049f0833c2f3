"""slurmrestd, and the TLS in front of it."""
