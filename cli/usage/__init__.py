"""Who used how many CPU and GPU hours, and what was wasted of them."""
