"""Convolutions on CUDA targets in terms of those that have a template."""

import decomposed
import exactness
import pytest
import torch

conv = torch.ops.aten.convolution.default


def only_templates(traced):
  """Whether there are templates for all convolutions of a graph. That of images has dilation."""
  found = [node for node in traced.graph.nodes if node.target is conv]
  return all(
    len(node.args[3]) in (2, 3)
    and (set(node.args[5]) == {1} or len(node.args[3]) == 2 and node.args[8] == 1)
    and not node.args[6]
    for node in found
  )


def check(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, **close):
  args = (stride, padding, dilation, transposed, output_padding, groups)
  traced = decomposed.graph(lambda x, weight, bias: conv(x, weight, bias, *args), (x, weight, bias))
  assert only_templates(traced)
  decomposed.equal(traced(x, weight, bias), conv(x, weight, bias, *args), **close)
  return traced


CASES = [
  # rank, channels, results, groups, kernel
  (1, 6, 4, 1, 3),
  (1, 6, 6, 6, 4),
  (1, 6, 12, 3, 2),
  (2, 4, 6, 1, 3),
  (2, 4, 4, 4, 3),
  (2, 4, 8, 4, 5),
  (2, 40, 40, 2, 3),
  (2, 2, 2, 2, 9),
  (3, 2, 4, 1, 2),
  (3, 4, 4, 4, 3),
]


@pytest.mark.parametrize("rank, channels, results, groups, kernel", CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution(rank, channels, results, groups, kernel, transposed):
  torch.manual_seed(3)
  sizes = (11, 9, 8)[:rank]
  shape = (channels, results // groups) if transposed else (results, channels // groups)
  x, weight = torch.randn(2, channels, *sizes), torch.randn(*shape, *[kernel] * rank)
  options = [(1, 0, 1), (2, 1, 1), (1, 1, 2), (3, 1, 2)]
  for number, (stride, padding, dilation) in enumerate(options):
    bias = torch.randn(results) if number % 2 else None
    if dilation * (kernel - 1) >= min(sizes) + 2 * padding:
      continue
    for more in (0, stride - 1)[: 1 + (transposed and stride == 3)]:
      check(
        x,
        weight,
        bias,
        [stride] * rank,
        [padding] * rank,
        [dilation] * rank,
        transposed,
        [more] * rank,
        groups,
        rtol=1e-4,
        atol=1e-4,
      )


def test_dimensions_differ():
  torch.manual_seed(3)
  x = torch.randn(2, 4, 12, 9).to(memory_format=torch.channels_last)
  for weight, groups in ((torch.randn(6, 4, 3, 2), 1), (torch.randn(4, 1, 2, 3), 4)):
    check(x, weight, None, [1, 2], [2, 0], [2, 3], False, [0, 0], groups, rtol=1e-4, atol=1e-4)
  weight = torch.randn(4, 6, 3, 2)
  check(x, weight, None, [3, 2], [0, 1], [1, 2], True, [1, 0], 1, rtol=1e-4, atol=1e-4)


def test_what_has_a_template_stays():
  x, weight = torch.randn(1, 8, 9, 9), torch.randn(4, 8, 3, 3)
  for dilation in (1, 3):
    traced = check(x, weight, None, [2, 2], [1, 1], [dilation] * 2, False, [0, 0], 1)
    assert decomposed.operators(traced) == {"aten::convolution"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_dtypes(dtype):
  torch.manual_seed(3)
  errors, traced = exactness.Errors(), None
  args = ([1], [3], [1], False, [0], 4)
  for _ in exactness.seeds(2 * 4 * 22):
    # Sums of products of such numbers are exact in float64.
    numbers = [torch.randn(size).mul(8) for size in ((2, 4, 30), (4, 1, 15), (4,))]
    x, weight, bias = (tensor.bfloat16().to(dtype) for tensor in numbers)
    traced = traced or decomposed.graph(lambda *t: conv(*t, *args), (x, weight, bias))
    result = traced(x, weight, bias)
    assert result.dtype == dtype
    exact = conv(x.double(), weight.double(), bias.double(), *args)
    if dtype in (torch.float64, torch.int64):
      assert torch.equal(result.double(), exact)
    else:
      plain = exactness.convolution(x[:, :, None], weight[:, :, None], [1, 1], [0, 3], [1, 1], 4)
      errors.add(exact, result, plain[:, :, 0] + bias.float()[:, None])
  if errors.count:
    errors.check(rms=1.01, largest=1.01)


def test_half_sums_are_rounded_once():
  """Sums in half precision would lose the small terms."""
  x, weight = torch.ones(1, 2, 49, dtype=torch.float16), torch.full((2, 1, 49), 2.0**-11)
  weight[:, :, 0] = 1
  weight = weight.half()
  result = decomposed.graph(
    lambda x, w: conv(x, w, None, [1], [0], [1], False, [0], 2), (x, weight)
  )(x, weight)
  assert torch.equal(result, torch.full((1, 2, 1), 1 + 48 * 2.0**-11, dtype=torch.float16))


def test_without_a_batch():
  torch.manual_seed(3)
  x, weight = torch.randn(4, 20), torch.randn(6, 4, 3)
  function = torch.nn.functional.conv1d
  traced = decomposed.graph(function, (x, weight))
  decomposed.equal(traced(x, weight), function(x, weight), rtol=1e-4, atol=1e-4)


def test_a_result_of_one_element_has_no_template():
  """Inductor's templates write one element from each place of their tiles."""
  torch.manual_seed(3)
  for rank in (1, 2, 3):
    for transposed, size in ((False, 4), (True, 1)):
      x = torch.randn(1, 3, *[size] * rank)
      weight = torch.randn(*((3, 1) if transposed else (1, 3)), *[size] * rank)
      options = ([1] * rank, [0] * rank, [1] * rank, transposed, [0] * rank, 1)
      traced = check(x, weight, torch.randn(1), *options, rtol=1e-4, atol=1e-4)
      assert not any(node.target is conv for node in traced.graph.nodes)


def test_elements_of_a_kernel_are_views_of_one_padded_image():
  """Masks for each of them would double the time of an export."""
  x, weight = torch.randn(1, 4, 9, 8), torch.randn(4, 1, 3, 5)
  traced = check(x, weight, None, [1, 2], [1, 2], [2, 1], False, [0, 0], 4, rtol=1e-4, atol=1e-4)
  names = decomposed.operators(traced)
  assert "aten::constant_pad_nd" in names and "aten::_unsafe_masked_index" not in names
  assert len(traced.graph.nodes) < 15 * 12
