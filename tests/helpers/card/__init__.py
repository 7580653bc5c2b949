"""A simulated card: PyTorch's CUDA build on a machine without a GPU."""
