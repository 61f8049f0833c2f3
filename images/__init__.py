"""What runs inside the pods: one folder per image, shared modules in `common`. Standard library only."""
