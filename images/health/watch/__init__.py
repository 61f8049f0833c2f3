"""Decides about all nodes of the cluster from what their checks, and Kubernetes, say about each."""
