"""What a change costs those who use the cluster, what is refused, and the way to apply it without the Pulumi engine."""
