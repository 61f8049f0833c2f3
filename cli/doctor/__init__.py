"""What is wrong, and what mends it: of a cloud before money is spent, and of a cluster that runs."""
