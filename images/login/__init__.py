"""Programs of the login image: sshd and sackd."""
