"""Who used how many CPU and GPU hours."""
