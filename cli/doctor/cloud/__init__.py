"""Questions to a cloud before money is spent, and what follows from its answers.

`ask` puts the questions and turns the service's messages into the plain values of `answers`; the other modules compare
these with the stack file and give findings. Only `ask` knows the SDK.
"""
