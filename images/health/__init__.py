"""Health of worker nodes: checks, what becomes of their results, and who drains and resumes."""
