"""Programs of the worker image: slurmd and its end, leave."""
