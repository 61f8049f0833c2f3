"""Pulumi components, one per file, named after what an operator would call the thing."""
