"""The way to apply with the real Pulumi engine."""
