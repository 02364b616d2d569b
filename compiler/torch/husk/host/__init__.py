"""Kernels of host targets."""
