"""What a change costs those who use the cluster, and what is refused; the same for both ways to apply."""
