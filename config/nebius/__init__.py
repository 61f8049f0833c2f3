"""The Nebius cloud: its section of the stack file, its platforms, and what must hold for both."""
