"""Images for clusters other than this machine's own: built, pushed, pinned and loaded with the tool that is there."""
