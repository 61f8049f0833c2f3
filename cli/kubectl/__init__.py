"""The way to apply without the Pulumi engine: server-side apply, and the waiting that follows."""
