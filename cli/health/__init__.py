"""What the health checks say about the nodes."""
