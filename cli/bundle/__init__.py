"""An archive for whoever helps: what a cluster says of itself, without its secrets."""
