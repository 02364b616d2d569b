"""Complex numbers of CUDA targets. Inductor makes no Triton kernels of complex tensors, so a graph
is rewritten to one of real tensors before Inductor gets it.

`graph` rewrites a graph, `dispatch` finds how an operator is computed, `operators` and `functions`
have the operators in terms of real and imaginary parts, `fourier` has the Fourier transforms."""

from .graph import functional as functional
from .graph import is_used as is_used
from .graph import rewrite as rewrite
