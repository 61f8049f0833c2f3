"""The Pulumi program run in this process: what it registers, as a graph, as manifests and as files."""
