"""kubectl, bound to one cluster: commands, questions, and pods as it tells of them."""
