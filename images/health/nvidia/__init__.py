"""What the checks of NVIDIA GPUs do; `images/health/checks/gpu.py` declares them."""
