"""Launches of Husk's own kernels by nodes of Inductor."""
