"""slurmdbd: the accounting daemon, the check of its database, and the program that applies the policy."""
