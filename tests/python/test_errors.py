"""Each mistake of a caller is an exception that names the thing and the remedy."""

import conftest
import husk
import numpy as np
import pytest
import torch

GOOD = np.ones((2, 4), np.float32)


def swapped(array):
  return array.astype(array.dtype.newbyteorder(">"))


WRONG_INPUTS = {
  "dtype of torch": (lambda: torch.ones(2, 4).double(), "'x' has dtype f64, must be f32: convert"),
  "dtype of numpy": (lambda: GOOD.astype(np.int32), "'x' has dtype i32, must be f32: convert"),
  "rank": (lambda: torch.ones(4), "'x' has 1 dims, must have 2"),
  "size": (lambda: torch.ones(2, 5), "size 1 of input 'x' is 5, must be 4: export with"),
  "range": (lambda: torch.ones(1025, 4), "is 1025, must be in 1..1024: export with a wider range"),
  "byte order": (lambda: swapped(GOOD), "'x' has the byte order of other machines: pass x.astype"),
  "negative stride": (lambda: GOOD[::-1], "'x' has a stride of -16 bytes in dim 0: pass numpy.asc"),
  "stride between elements": (
    lambda: np.zeros((2, 9), np.uint8)[:, 1:].view(np.float32)[:, :1].repeat(4, 1)[:, ::-1],
    "stride of -4 bytes in dim 1",
  ),
  "odd stride": (
    lambda: np.ndarray((2, 4), np.float32, np.zeros(40, np.uint8), 0, (18, 4)),
    "stride of 18 bytes in dim 0",
  ),
  "format": (lambda: np.array([["a"] * 4]), "'x' cannot be read without a copy: DLPack only"),
  "too many dims": (lambda: np.ones((1,) * 17, np.float32), "'x' has 17 dims, at most 16"),
  "conjugate": (lambda: torch.ones(2, 4, dtype=torch.complex64).conj(), "resolve_conj"),
  "negative": (lambda: torch.ones(2, 4, dtype=torch.complex64).conj().imag, "resolve_neg"),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_wrong_inputs(load, name):
  make, text = WRONG_INPUTS[name]
  with pytest.raises(husk.InvalidInputError) as caught:
    load(conftest.COPY)(make())
  assert text in str(caught.value) and caught.value.status == 4
  assert isinstance(caught.value, ValueError) and isinstance(caught.value, husk.Error)


@pytest.mark.parametrize(
  ("args", "kwargs", "text"),
  [
    (([1.0],), {}, "input 'x' is a tensor: pass a torch.Tensor, a numpy.ndarray or an object with"),
    ((None,), {}, "not <class 'NoneType'>"),
    ((), {}, r"forward\(\) lacks 'x': it was exported with x"),
    ((GOOD, GOOD), {}, "takes 1 positional arguments, 2 were passed"),
    ((GOOD,), {"mask": GOOD}, "has no argument 'mask', it was exported with x"),
    ((GOOD,), {"x": GOOD}, "got two values for 'x'"),
  ],
)
def test_wrong_arguments(load, args, kwargs, text):
  with pytest.raises(TypeError, match=text):
    load(conftest.COPY)(*args, **kwargs)


@pytest.mark.parametrize(
  ("deep", "mask", "text"),
  [
    (3, True, "argument 1 is a dict in the model: pass a dict, not int"),
    ({}, True, r"argument 1\['deep'\] is missing"),
    ({"deep": 3}, True, r"argument 1\['deep'\] is a sequence in the model"),
    ({"deep": [GOOD]}, True, r"argument 1\['deep'\] has 1 entries, must have 2"),
    ({"deep": [GOOD, 1], "more": 1}, True, "argument 1 has the key 'more'"),
    ({"deep": [GOOD, 1]}, False, r"lacks mask=: it was exported with x, argument 1, mask="),
  ],
)
def test_wrong_nesting(load, deep, mask, text):
  with pytest.raises(TypeError, match=text):
    load(conftest.NESTED)(GOOD, deep, **({"mask": GOOD} if mask else {}))


@pytest.mark.parametrize(
  ("args", "error", "text"),
  [
    (("a", 1.5, True, None), TypeError, "input 'i' is an int, not <class 'str'>"),
    ((1.5, 1.5, True, None), TypeError, "input 'i' is an int, not <class 'float'>"),
    ((2**70, 1.5, True, None), husk.InvalidInputError, "'i' does not fit into 64 bits"),
    ((11, 1.5, True, None), husk.InvalidInputError, "'i' is 11, must be in 0..10"),
    ((1, "a", True, None), TypeError, "input 'f' is a float"),
    ((1, 1.5, "a", None), TypeError, "input 'b' is a bool"),
    ((1, 1.5, True, 3), TypeError, "input 'nothing' is None"),
  ],
)
def test_wrong_numbers(load, args, error, text):
  with pytest.raises(error, match=text):
    load(conftest.NUMBERS)(*args)


def test_wrong_outputs(load):
  program = load(conftest.COPY)
  read_only = np.zeros((2, 4), np.float32)
  read_only.flags.writeable = False
  with pytest.raises(husk.InvalidInputError, match="output 'y' is read-only"):
    program(GOOD, out=(read_only, None))
  with pytest.raises(husk.InvalidInputError, match="'y'"):
    program(GOOD, out=(np.zeros((3, 4), np.float32), None))
  with pytest.raises(husk.InvalidInputError, match="'k' is no tensor: pass None for it"):
    program(GOOD, out=(np.zeros((2, 4), np.float32), np.zeros(1)))
  with pytest.raises(TypeError, match="out is a sequence in the model"):
    program(GOOD, out=np.zeros((2, 4), np.float32))
  with pytest.raises(husk.InvalidInputError, match="'y' has a size that only the data decides"):
    load(conftest.NONZERO)(np.ones(3, np.float32), out=np.zeros((3, 1), np.int64))


def test_a_program_works_after_each_error(load):
  program = load(conftest.COPY)
  with pytest.raises(husk.Error):
    program(GOOD.astype(np.float64))
  assert np.array_equal(program(GOOD)[0], GOOD)


def test_wrong_files(tmp_path, compiled):
  with pytest.raises(husk.FileError, match="No such file"):
    husk.load(tmp_path / "missing.husk")
  with pytest.raises(husk.InvalidFileError, match="not a Husk artifact"):
    husk.load(b"text")
  damaged = bytearray(compiled(conftest.COPY).read_bytes())
  damaged[64:] = bytes(byte ^ 255 for byte in damaged[64:])
  with pytest.raises(husk.InvalidFileError):
    husk.load(damaged)


def test_wrong_options_of_load(compiled):
  path = compiled(conftest.COPY)
  with pytest.raises(ValueError, match='device \'gpu\': give "cpu", "cuda" or "cuda:N"'):
    husk.load(path, "gpu")
  with pytest.raises(ValueError, match="give a number after"):
    husk.load(path, "cuda:x")
  with pytest.raises(TypeError, match="no option 'speed'"):
    husk.load(path, speed=3)
  with pytest.raises(ValueError, match="threads=0: give a number from 1 to 1024"):
    husk.load(path, threads=0)
  with pytest.raises(TypeError, match="accept must be a function"):
    husk.load(path, accept=3)
  with pytest.raises(husk.LimitError):
    husk.load(path, max_metadata_bytes=1)


def test_a_missing_driver_is_named(compiled, monkeypatch):
  if torch.cuda.is_available():
    pytest.skip("this machine has a driver")
  with pytest.raises(husk.UnsupportedError, match="libcuda"):
    husk.load(compiled(conftest.COPY), "cuda:0")


def test_unknown_functions_are_named(load):
  program = load(conftest.CACHE)
  for owner in (program, program.session()):
    with pytest.raises(AttributeError, match="no function 'decode', it has 'put', 'get'"):
      _ = owner.decode


def test_accept_sees_the_hash_and_may_refuse(compiled):
  hashes = []
  husk.load(compiled(conftest.COPY), accept=lambda content: not hashes.append(content))
  assert len(hashes[0]) == 32
  with pytest.raises(husk.Error):
    husk.load(compiled(conftest.COPY), accept=lambda content: False)


def raise_arithmetic(*_):
  raise ArithmeticError("from the callback")


def test_an_exception_of_a_callback_is_raised(compiled):
  with pytest.raises(ArithmeticError, match="from the callback"):
    husk.load(compiled(conftest.COPY), accept=raise_arithmetic)
  with pytest.raises(ArithmeticError, match="from the callback"):
    husk.load(compiled(conftest.CACHE), verify=True, progress=raise_arithmetic)


def test_progress_of_a_verified_load(compiled):
  seen = []
  husk.load(compiled(conftest.CACHE), verify=True, progress=lambda *pair: seen.append(pair))
  assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] > 0


def test_a_size_without_an_upper_bound(load):
  program = load(conftest.COPY.replace("[1..1024, 4]", "[2..inf, 4]"))
  text = "size 0 of input 'x' is 1, must be at least 2: export with a wider range"
  with pytest.raises(husk.InvalidInputError, match=text):
    program(np.zeros((1, 4), np.float32))
  assert program(np.zeros((5000, 4), np.float32))[0].shape == (5000, 4)
