"""The lists of element types that are written from schema/dtypes.def."""

import re

import numpy as np
import torch
import written_lists
from husk import dtypes
from written_lists import SCHEMA


def generator():
  return written_lists.script("dtypes.py")


def test_the_written_lists_are_those_of_the_rows():
  assert not generator().differing(), "run: python3 schema/dtypes.py"


def test_every_row_belongs_to_a_type_and_to_a_list_that_is_declared():
  text = (SCHEMA / "dtypes.def").read_text()
  lists = generator().rows(text)
  names = [row[1] for row in lists["DTYPE"]]
  for macro, rows in lists.items():
    assert f"#undef HUSK_{macro}\n" in text
    of = [row[1 if macro == "DTYPE" else 0] for row in rows]
    assert set(of) <= set(names) and len(of) == len(set(of)), macro
  assert [int(row[0]) for row in lists["DTYPE"]] == list(range(1, len(names) + 1))
  floats = [row[1] for row in lists["DTYPE"] if row[4] in ("Float", "Complex")]
  for macro in ("FLOAT", "TOLERANCE"):
    assert [row[0] for row in lists[macro]] == floats


def test_the_page_about_the_text_form_lists_the_types():
  page = (SCHEMA.parent / "compiler/ir/HIR.md").read_text()
  listed = re.search(r"`DTYPE` is one of `([^`]*)`", page)
  assert listed and listed[1].split() == list(dtypes.CODES)


def test_pytorch_and_numpy_have_the_types():
  kinds = {"b": "bool", "u": "unsigned", "i": "signed", "f": "float", "c": "complex"}
  for name, torch_name in dtypes.TORCH.items():
    dtype = getattr(torch, torch_name)
    assert dtype.itemsize == dtypes.BYTES[name]
    assert dtype.is_complex == (dtypes.KINDS[name] == "complex")
    assert dtype.is_floating_point == (dtypes.KINDS[name] == "float")
  lists = generator().rows((SCHEMA / "dtypes.def").read_text())
  for name, numpy_name, npy, buffer_format in lists["NUMPY"]:
    dtype = np.dtype(numpy_name)
    assert (kinds[dtype.kind], dtype.itemsize) == (
      dtypes.KINDS[name.lower()],
      dtypes.BYTES[name.lower()],
    )
    assert dtype.str[1:] == npy and np.dtype(npy) == dtype
    if name not in ("I64", "U64"):  # NumPy writes a long of C, of as many bytes
      assert memoryview(np.empty(1, dtype)).format == buffer_format


def test_pytorch_has_the_floats():
  lists = generator().rows((SCHEMA / "dtypes.def").read_text())
  named = {row[1]: getattr(torch, row[6]) for row in lists["DTYPE"]}
  for name, exponent, fraction, bias, special in lists["FLOAT"]:
    info = torch.finfo(named[name])
    top = 2 ** int(exponent) - 1 - int(bias) - (special == "Infinities")
    last = 2 ** -int(fraction)
    assert info.bits == 1 + int(exponent) + int(fraction)
    assert info.max == 2.0**top * (2 - last * (2 if special == "OneNan" else 1))
    assert info.smallest_normal == 2.0 ** (1 - int(bias))
