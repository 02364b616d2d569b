"""A part of decomposition_contracts.py: decompositions have the dtypes, shapes, devices and values
of the operators, for all dtypes that eager mode takes, and so has what PyTorch traces for the
operators of the host."""

import decomposition_contracts
import pytest
import torch
from husk.inductor.decompositions import reduce

NAMES = {
  "addmm",
  "baddbmm",
  "bincount",
  "histc",
  "index_add",
  "index_put",
  "index_reduce_amax",
  "kthvalue",
  "linalg.pinv",
  "masked_select",
  "median",
  "nn.functional.bilinear",
  "nn.functional.embedding_bag",
  "nonzero",
  "pinverse",
  "scatter",
  "scatter_add",
  "scatter_reduce_prod",
  "segment_reduce_lengths",
  "sort",
  "take",
  "topk",
  "unique",
  "unique_consecutive",
}


@pytest.mark.parametrize(
  ("kind", "least"), ((decomposition_contracts.Compared, 20), (decomposition_contracts.Traced, 20))
)
def test_results_are_as_in_eager_mode(kind, least):
  compared = decomposition_contracts.compare(NAMES, 3, kind)
  assert not compared.found, dict(compared.found)
  assert len(compared.reached) >= least


COMPLEX = {"addbmm", "fft.hfft", "index_put", "prod", "select_scatter", "where"}


def test_complex_numbers_are_as_in_eager_mode():
  computed = decomposition_contracts.compare(COMPLEX, 1, decomposition_contracts.Complex)
  aten, x = torch.ops.aten, torch.randn(4, dtype=torch.complex64)
  with computed:
    aten.copy.default(x, torch.randn(4, dtype=torch.float64))
    aten.copy.default(x, torch.randn(4, dtype=torch.complex128))
    aten.copy.default(x.real, x)
    aten.masked_fill.Tensor(x, x.real > 0, torch.tensor(2.0, dtype=torch.float64))
    aten.prod.dim_int(x.sum(), 0)
  assert not computed.found, dict(computed.found)
  assert len(computed.reached) >= 10


def test_calls_that_no_sample_has():
  compared = decomposition_contracts.Compared()
  decomposition_contracts.compare_calls(compared)
  assert not compared.found, dict(compared.found)
  assert len(compared.reached) >= 48


def test_a_scatter_has_the_dtype_of_the_tensor():
  """Inductor makes a scatter of a number one of a tensor of ints."""
  x, index = torch.zeros(2, 4), torch.tensor([[0, 2], [1, 1]])
  result = reduce._scatter(x, 1, index, torch.ones(2, 2, dtype=torch.int64))
  assert result.dtype == torch.float32 and torch.equal(result, x.scatter(1, index, 1))
