"""What a stack costs an hour, at its smallest and at its largest, by the prices in its own file."""
