"""Nebius: network, Managed Kubernetes, node groups, GPU clusters, file systems and addresses in one project.

The only package that knows the cloud's own Pulumi provider.
"""
