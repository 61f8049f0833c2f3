"""The checks of a worker node, one module each with a `CHECK`."""
