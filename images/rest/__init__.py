"""slurmrestd, and the TLS in front of it and of the dashboard."""
