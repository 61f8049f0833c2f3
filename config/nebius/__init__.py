"""The Nebius cloud: its platforms, and what a stack takes of it."""
