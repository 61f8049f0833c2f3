"""Programs of the jail image: populate and users."""
