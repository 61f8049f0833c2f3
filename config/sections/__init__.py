"""One model for each section of a stack file, with the checks that need no other section."""
