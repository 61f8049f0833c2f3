"""What a change would do, as one document: for people, for scripts, and as a comment in a pull request."""
