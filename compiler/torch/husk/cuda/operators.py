"""The operators of the port of CUDA (ports/cuda/ops/matmul.h), which calls cuBLASLt for them."""

NAMES = frozenset({"husk::matmul"})
