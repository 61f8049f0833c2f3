"""What jobs used of what they asked for."""
