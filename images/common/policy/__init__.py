"""The accounts, QOS and limits of a stack file as pods and commands know them."""
