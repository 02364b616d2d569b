"""Makes Triton's interpreter faster: most of its time goes to values that it makes anew for each
operation, though they depend on little, and to a check whose result it drops. What kernels compute
stays the same, but for subnormal bf16."""

import dataclasses

import numpy
import triton.language as tl
from triton.runtime import interpreter


def patch():
  """Must be called once, before a kernel is interpreted. The process must interpret all kernels."""
  _drop_unread_checks()
  _patch_language_once()
  _keep_dtypes()
  _keep_shapes()
  _widen_at_once()


def _drop_unread_checks():
  """Each sum, difference and product of ints is computed again in 64 bits, for an assert on its
  range that is not evaluated: the interpreter's options have `debug` off."""
  options = interpreter.interpreter_builder.options
  if not options.debug:
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)


def _patch_language_once():
  """Replaces the functions of triton.language when a function that uses them is called first. The
  interpreter looks for them in each call of a function, and puts them back after each kernel."""
  original, patched = interpreter._patch_lang, set()

  class Kept:
    def restore(self):
      pass

  def patch_lang(function):
    if function not in patched:
      original(function)
      patched.add(function)
    return Kept()

  interpreter._patch_lang = patch_lang


def _keep_dtypes():
  """Finds NumPy's dtype by the name of Triton's, without a table that is made for each question."""
  original, known = interpreter._get_np_dtype, {}

  def np_dtype(dtype):
    if isinstance(dtype, tl.block_type):
      dtype = dtype.element_ty
    name = "pointer" if isinstance(dtype, tl.pointer_type) else dtype.name
    if name not in known:
      known[name] = original(dtype)
    return known[name]

  interpreter._get_np_dtype = np_dtype


def _widen_at_once():
  """Converts bf16 to f32 by a shift of its bits, and numbers of 8 bits by a table of all of them.
  The interpreter takes each number apart. Subnormal bf16 become what hardware makes of them, which
  the interpreter gets wrong."""
  original, tables = interpreter._convert_float, {}

  def convert(data, source, target, rounding):
    if source == tl.bfloat16 and target == tl.float32:
      return data.view(numpy.uint16).astype(numpy.uint32) << numpy.uint32(16)
    if source.primitive_bitwidth != 8:
      return original(data, source, target, rounding)
    key = source.name, target.name, rounding
    if key not in tables:
      numbers = numpy.arange(256, dtype=numpy.uint8)
      tables[key] = original(numbers.view(data.dtype), source, target, rounding)
    return tables[key][data.view(numpy.uint8)]

  interpreter._convert_float = convert


def _keep_shapes():
  """Makes the shape of a type, and the shape of the tensors of that type, once for each shape."""
  make_type, make_tensor, known = tl.block_type.__init__, tl.tensor.__init__, {}
  equal, same = tl.core.tuple.__eq__, tl.constexpr(True)

  def type_init(self, element_ty, shape):
    key = tuple([size.value if isinstance(size, tl.constexpr) else size for size in shape])
    if key not in known:
      make_type(self, element_ty, shape)
      sample = object.__new__(tl.tensor)
      make_tensor(sample, None, self)
      known[key] = self.shape, self.numel, f"<{self.shape}, ", sample.shape, sample.numel
    self.element_ty = element_ty
    self.shape, self.numel, begin, self.husk_shape, self.husk_numel = known[key]
    self.name = f"{begin}{element_ty}>"

  def tensor_init(self, handle, type):
    if not type.is_block():
      return make_tensor(self, handle, type)
    self.handle, self.type, self.dtype = handle, type, type.element_ty
    self.shape, self.numel = type.husk_shape, type.husk_numel

  tl.core.tuple.__eq__ = lambda self, other: same if self is other else equal(self, other)
  tl.block_type.__init__, tl.tensor.__init__ = type_init, tensor_init
