"""`make bench`: how long the things take that a user waits for. docs/benchmarks/README.md says what each row means."""
