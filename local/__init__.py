"""A real Kubernetes of two nodes on one Linux machine, from packages alone: nothing is installed on the host."""
