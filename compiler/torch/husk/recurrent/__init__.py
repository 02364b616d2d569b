"""Recurrent layers on CUDA targets: one kernel computes all steps of a layer."""
