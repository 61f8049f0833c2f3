"""Questions to a cloud before money is spent, and what follows from its answers: the region, quotas and stock."""
