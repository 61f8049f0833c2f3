"""Programs of the jail image: populate, roots, users, seff."""
