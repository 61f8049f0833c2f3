"""What runs, at one glance."""
