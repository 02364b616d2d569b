"""The few instructions of PTX that kernels of Husk contain as text, computed by NumPy."""

import re

import numpy

U32 = numpy.uint32


def evaluate(text, inputs, outputs):
  """The words of `outputs` results. `inputs` are arrays of words, one for each register that is
  read: $outputs and so on."""
  registers = {f"${outputs + place}": words.astype(U32) for place, words in enumerate(inputs)}

  def value(name):
    return registers[name] if name in registers else U32(int(name, 0))

  for step in re.split("[;{}]", text):
    if not step.strip() or step.strip().startswith(".reg"):
      continue
    operation, operands = step.strip().split(maxsplit=1)
    target, *rest = [one.strip() for one in operands.split(",")]
    registers[target] = _OPERATIONS[operation](*map(value, rest))
  shape = inputs[0].shape
  return [numpy.broadcast_to(registers[f"${place}"], shape) for place in range(outputs)]


def _permuted(one, other, selector):
  """prmt: each byte of the result is one of the eight bytes of two words."""
  words = numpy.asarray(one).astype(numpy.uint64) | (numpy.uint64(other) << numpy.uint64(32))
  result = U32(0)
  for place in range(4):
    byte = int(selector) >> (4 * place) & 15
    assert byte < 8, "a byte that repeats a sign"
    part = (words >> numpy.uint64(8 * byte)) & numpy.uint64(255)
    result = result | (part.astype(U32) << U32(8 * place))
  return result


def _logic(a, b, c, table):
  """lop3: the bit of a table that the bits of three words choose."""
  result = U32(0)
  for row in range(8):
    if int(table) >> row & 1:
      terms = [word if row >> (2 - place) & 1 else ~word for place, word in enumerate((a, b, c))]
      result = result | (terms[0] & terms[1] & terms[2])
  return result


def _of_pairs(from_bits, to_bits):
  """fma of the two numbers of 16 bits in a word."""

  def halves(word):
    return [from_bits((word >> U32(shift)) & U32(0xFFFF)) for shift in (0, 16)]

  def fma(a, b, c):
    low, high = (to_bits(x * y + z) for x, y, z in zip(halves(a), halves(b), halves(c)))
    return low | (high << U32(16))

  return fma


def bf16_to_float(bits):
  return (numpy.asarray(bits, U32) << U32(16)).view(numpy.float32).astype(numpy.float64)


def _float_to_bf16(numbers):
  bits = numpy.atleast_1d(numbers.astype(numpy.float32)).view(U32)
  return ((bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)).reshape(numbers.shape)


def f16_to_float(bits):
  return numpy.asarray(bits, numpy.uint16).view(numpy.float16).astype(numpy.float64)


def _float_to_f16(numbers):
  bits = numpy.atleast_1d(numbers.astype(numpy.float16)).view(numpy.uint16)
  return bits.astype(U32).reshape(numbers.shape)


_OPERATIONS = {
  "mov.b32": lambda a: a,
  "prmt.b32": _permuted,
  "shr.u32": lambda a, b: a >> b,
  "shl.b32": lambda a, b: a << b,
  "and.b32": lambda a, b: a & b,
  "lop3.b32": _logic,
  "fma.rn.bf16x2": _of_pairs(bf16_to_float, _float_to_bf16),
  "fma.rn.f16x2": _of_pairs(f16_to_float, _float_to_f16),
}


def elementwise(text, constraints, values, kinds, pack):
  """The results of an instruction that computes `pack` elements at a time. `values` are arrays, and
  `kinds` the dtypes of the results."""
  count = len(re.findall("=r", constraints))
  flat = [value.reshape(-1) for value in values]
  assert flat[0].size % pack == 0
  inputs = []
  for value in flat:
    words = value.view(U32).reshape(flat[0].size // pack, -1)
    inputs += list(words.T)
  outputs = evaluate(text, inputs, count)
  each = count // len(kinds)
  results = []
  for place, kind in enumerate(kinds):
    words = numpy.stack(outputs[place * each : (place + 1) * each], -1)
    results.append(numpy.ascontiguousarray(words).view(kind).reshape(values[0].shape))
  return results
