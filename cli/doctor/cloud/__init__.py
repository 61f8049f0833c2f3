"""Questions to a cloud before money is spent, and what follows from its answers: the region, quotas and stock.

`ask` puts the questions; what comes back are the service's own messages, which the other modules compare with the stack
file. What `validate` and `preview` say already is not asked again.
"""
