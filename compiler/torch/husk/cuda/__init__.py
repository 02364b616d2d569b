"""Kernels of CUDA targets, compiled for a GPU that need not be there."""
