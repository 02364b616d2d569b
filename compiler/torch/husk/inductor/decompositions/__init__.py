"""Operators in terms of other operators.

`table` is for torch.export programs of all targets, `one_row` and `kernels` for Inductor while it
compiles for a CUDA target, `hosts` while it compiles for hosts."""

from .kernels import hosts as hosts
from .kernels import kernels as kernels
from .model import one_row as one_row
from .model import table as table
