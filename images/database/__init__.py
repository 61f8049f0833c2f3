"""MariaDB for slurmdbd."""
