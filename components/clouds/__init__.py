"""Clouds: what gives us a Kubernetes provider and a shared file system. One module per cloud."""
