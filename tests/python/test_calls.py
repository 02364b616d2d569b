"""Calls of programs: tensors of PyTorch and NumPy, nesting, functions by name, numbers, out=."""

import mmap
import subprocess
import sys

import conftest
import husk
import numpy as np
import pytest
import torch


@pytest.mark.parametrize("rows", [1, 3, 1024])
def test_tensors_of_torch_give_tensors_of_torch(load, rows):
  x = torch.randn(rows, 4)
  y, k = load(conftest.COPY)(x)
  assert isinstance(y, torch.Tensor) and torch.equal(y, x) and k == 2 * rows
  assert y.data_ptr() != x.data_ptr()


def test_arrays_give_arrays(load):
  x = np.arange(8, dtype=np.float32).reshape(2, 4)
  y, k = load(conftest.COPY)(x)
  assert isinstance(y, np.ndarray) and np.array_equal(y, x) and k == 4
  assert y.flags.writeable and y.flags.owndata


def test_read_only_arrays_are_inputs(load):
  x = np.ones((2, 4), np.float32)
  x.flags.writeable = False
  assert np.array_equal(load(conftest.COPY)(x)[0], x)


def test_sizes_may_change_from_call_to_call(load):
  program = load(conftest.COPY)
  for rows in (1, 700, 3, 1024, 3):
    x = torch.randn(rows, 4)
    assert torch.equal(program(x)[0], x)


def test_a_float_may_decide_a_size(load):
  program = load(conftest.FLOAT_SIZE)
  for t in (3.0, 5.5, 2.0, 2.5, 2.0):
    assert program(t).shape == (int(t),)


def test_misaligned_inputs_are_copied(load):
  bytes_ = np.zeros(33, np.uint8)
  x = bytes_[1:].view(np.float32).reshape(2, 4)
  x[:] = 3
  assert np.array_equal(load(conftest.COPY)(x)[0], x)


class WithCapsule:
  """A tensor of a library with `__dlpack__` alone; `versions` tells whether it takes
  max_version."""

  def __init__(self, tensor, versions):
    self.tensor = tensor
    self.versions = versions

  def __dlpack_device__(self):
    return (1, 0)

  def __dlpack__(self, **keywords):
    if keywords and not self.versions:
      raise TypeError("unexpected keyword")
    self.keywords = keywords
    return self.tensor.__dlpack__(**keywords)


@pytest.mark.parametrize("versions", [True, False])
def test_capsules_with_and_without_a_version(load, versions):
  x = torch.randn(3, 4)
  wrapped = WithCapsule(x, versions)
  y, _ = load(conftest.COPY)(wrapped)
  assert isinstance(y, np.ndarray) and np.array_equal(y, x.numpy())
  assert bool(wrapped.keywords) == versions


def test_memoryviews_are_inputs(load):
  x = np.ones((2, 4), np.float32)
  assert np.array_equal(load(conftest.COPY)(memoryview(x))[0], x)


def test_parameters_are_inputs(load):
  x = torch.nn.Parameter(torch.randn(2, 4))
  y, _ = load(conftest.COPY)(x)
  assert torch.equal(y, x.detach()) and not y.requires_grad


def test_an_argument_may_be_passed_by_name(load):
  x = torch.randn(2, 4)
  assert torch.equal(load(conftest.COPY)(x=x)[0], x)


@pytest.mark.parametrize("sequence", [tuple, list])
def test_values_nest_as_they_were_exported(load, sequence):
  x, a, m = torch.zeros(2), torch.ones(2), torch.tensor([True, False])
  result = load(conftest.NESTED)(x, {"deep": sequence([a, 41])}, mask=m)
  assert list(result) == ["first", "rest"] and torch.equal(result["first"], a)
  assert type(result["rest"]) is tuple and type(result["rest"][0]) is list
  assert torch.equal(result["rest"][0][0], m) and result["rest"][1] == 42


def test_numbers_of_each_kind(load):
  program = load(conftest.NUMBERS)
  assert program(3, 1.5, True, None) == (4, 1.5, None)
  assert program(np.int64(3), np.float32(1.5), np.bool_(True), None) == (4, 1.5, None)
  assert program(torch.tensor(3), torch.tensor(1.5), torch.tensor(True), None) == (4, 1.5, None)


def test_functions_by_name(load):
  program = load(conftest.CACHE)
  assert list(program.functions) == ["put", "get"]
  assert np.array_equal(program.get(), np.ones(4, np.float32)) or torch.equal(
    program.get(), torch.ones(4)
  )
  program.put(torch.arange(4.0))
  assert torch.equal(program.put(torch.zeros(4)), torch.arange(4.0))


def test_a_size_that_only_the_data_decides(load):
  program = load(conftest.NONZERO)
  for x in ([0, 1, 1], [0, 0, 0], [1] * 1000, [1, 0]):
    tensor = torch.tensor(x, dtype=torch.float32)
    first = program(tensor)
    program(torch.ones(7))  # writes the session's memory again
    assert torch.equal(first, tensor.nonzero())
    assert np.array_equal(program(tensor.numpy()), tensor.nonzero().numpy())


@pytest.mark.parametrize("library", [torch, np])
def test_out_is_written_and_returned(load, library):
  x = library.ones((2, 4), dtype=library.float32)
  y = library.zeros((2, 4), dtype=library.float32)
  result = load(conftest.COPY)(x, out=(y, None))
  assert result[0] is y and result[1] == 4 and bool((y == 1).all())


def test_sources_in_memory(compiled):
  path, x = compiled(conftest.COPY), torch.randn(2, 4)
  data = path.read_bytes()
  for source in (data, bytearray(data), memoryview(data), str(path), path):
    assert torch.equal(husk.load(source)(x)[0], x)
  with open(path, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
  program = husk.load(mapped)
  assert torch.equal(program(x)[0], x)
  with pytest.raises(BufferError):
    mapped.close()  # the program uses the pages
  del program
  mapped.close()


def test_a_program_has_a_readable_repr(load):
  text = repr(load(conftest.CACHE))
  assert "put(x: f32[4]) -> (before: f32[?])" in text and "state cache: f32[4]" in text


def test_the_runtime_needs_no_torch(compiled, environment):
  script = (
    "import sys, husk, numpy as np\n"
    f"y, k = husk.load({str(compiled(conftest.COPY))!r})(np.ones((2, 4), np.float32))\n"
    "assert y.sum() == 8 and k == 4 and 'torch' not in sys.modules\n"
  )
  subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_an_exported_model(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, *, mask):
      y = self.linear(x) * mask
      return {"y": y, "parts": [y.sum(0), (y.exp(), y.argmax(1))]}

  model = Model().eval()
  x, mask = torch.randn(5, 4), torch.ones(5, 1)
  rows = torch.export.Dim("rows", min=2, max=64)
  husk.export(
    model,
    (x,),
    tmp_path / "model.husk",
    kwargs={"mask": mask},
    dynamic_shapes={"x": {0: rows}, "mask": {0: rows}},
  )
  program = husk.load(tmp_path / "model.husk")
  for n in (5, 64, 2):
    x, mask = torch.randn(n, 4), torch.rand(n, 1)
    with torch.no_grad():
      torch.testing.assert_close(program(x, mask=mask), model(x, mask=mask))
  result = program(x, mask=mask)
  assert type(result["parts"]) is list and type(result["parts"][1]) is tuple
