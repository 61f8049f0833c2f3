"""What the checks of NVIDIA GPUs share: nvidia-smi's answers, and the table of Xids."""
