"""The tests themselves: what each runs on the node, and how its output is read."""
