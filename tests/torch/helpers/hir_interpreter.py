"""Runs the host variant of a `.hir` text on torch tensors. Tests compare the results of a text
without the compiler and the runtime. The interpreter follows compiler/ir/HIR.md and refuses every
other text. It is slow."""

import ctypes
import functools
import math
import pathlib
import re

import safetensors.torch
import torch
import vision_operators
from activation_functions import ACTIVATIONS
from husk import dtypes
from husk.lower import workspaces
from torch.nn import functional as F

_TOKEN = re.compile(
  r'\s+|#[^\n]*|"(?:[^"\\]|\\.)*"|-?inf\b|-?\d[\d.eE+-]*|\.\.|[A-Za-z_][A-Za-z0-9_.:]*|[\[\](){},=]'
)
DTYPES = {name: getattr(torch, other) for name, other in dtypes.TORCH.items()}


@functools.cache
def _define_operators():
  """Defines Husk's operators in terms of PyTorch's."""
  from husk.host import convolution, convolution_int8
  from husk.inductor.decompositions import vision
  from husk.quantized import operator as quantized
  from husk.recurrent import operator as recurrent

  recurrent.layer()
  torch.library.impl("husk::recurrent_layer", "CPU", _recurrent_layer)
  convolution.operator()
  convolution.pair_operator()
  torch.library.impl("husk::convolution", "CPU", _convolution)
  torch.library.impl("husk::convolution_depthwise", "CPU", _convolution_depthwise)
  convolution_int8.operator()
  torch.library.impl("husk::convolution_int8", "CPU", _convolution_int8)
  vision.unsuppressed()
  torch.library.impl("husk::unsuppressed", "CPU", _unsuppressed)
  quantized.operator()
  torch.library.impl("husk::linear_quantized", "CPU", _linear_quantized)
  quantized.grouped_operator()
  quantized.rounded_operator()
  torch.library.impl("husk::linear_rounded", "CPU", _linear_rounded)


def _unsuppressed(boxes, iou_threshold):
  in_order = torch.arange(boxes.shape[0], 0, -1)
  kept = vision_operators.nms(boxes, in_order, iou_threshold)
  return torch.zeros(boxes.shape[0], dtype=torch.bool).index_fill(0, kept, True)


def _recurrent_layer(kind, gates, hidden, cell, weight, bias, is_reverse):
  """One step after another, by the cells of PyTorch."""
  size = hidden.shape[-1]
  count = weight.shape[0] // size
  one = torch.eye(count * size)  # PyTorch's cells multiply the inputs themselves
  bias = torch.zeros(count * size) if bias is None else bias
  step = getattr(torch, f"{kind}_cell")
  states = [hidden]
  for gate in reversed(gates) if is_reverse else gates:
    states.append(step(gate, states[-1], one, weight, torch.zeros_like(bias), bias))
  return torch.stack(states[::-1] if is_reverse else states)


def _linear_quantized(
  input, weight, scales, zeros, values, bias, residual, activation, bits, group
):
  from husk.quantized.operator import numbers

  matrix = numbers(weight, scales, zeros, values, bits, group)
  wide = None if bias is None else bias.float()
  result = ACTIVATIONS[activation](F.linear(input.float(), matrix, wide))
  return (result if residual is None else result + residual).to(input.dtype)


def _linear_rounded(input, *rest):
  blocks = input.float().unflatten(-1, (-1, 32))
  steps = blocks.abs().amax(-1, keepdim=True) / 127
  rounded = (blocks / steps.where(steps != 0, 1)).round() * steps
  return _linear_quantized(rounded.flatten(-2), *rest).to(input.dtype)


def _convolution(input, weight, bias, *rest):
  *numbers, scale, residual, activation = rest
  result = torch.ops.aten.convolution(input, weight, None, *numbers)
  shape = [1, -1] + [1] * (result.dim() - 2)
  if scale is not None:
    result = result * scale.view(shape)
  if bias is not None:
    result = result + bias.view(shape)
  if residual is not None:
    result = result + residual
  return ACTIVATIONS[activation](result)


def _convolution_int8(input, weight, scales, bias, stride, padding, dilation, groups, *rest):
  scale, zero, dynamic_scale, dynamic_zero, residual, residual_scale, residual_zero = rest[:7]
  activation, out_scale, out_zero, out_least, out_most, dtype = rest[7:]
  if dynamic_scale is not None:
    scale, zero = dynamic_scale, dynamic_zero
  x = ((input.float() - zero) * scale).float()
  matrix = weight.float() * scales.view(-1, *[1] * (weight.dim() - 1))
  if weight.dim() == 2:
    result = F.linear(x, matrix, bias)
  else:
    zeros = [0] * len(stride)
    result = torch.ops.aten.convolution(
      x, matrix, bias, stride, padding, dilation, False, zeros, groups
    )
  if residual is not None:
    result = result + (residual.float() - residual_zero) * residual_scale
  result = ACTIVATIONS[activation](result)
  if dtype == torch.float32:
    return result
  return (torch.round(result * (1 / out_scale)) + out_zero).clamp(out_least, out_most).to(dtype)


def _convolution_depthwise(input, *rest):
  result = input
  for groups, part in ((1, rest[:7]), (rest[7].shape[0], rest[7:])):
    *numbers, scale, activation = part
    result = _convolution(result, *numbers, False, [0, 0], groups, scale, None, activation)
  return result


_C = {
  "i64": ctypes.c_int64,
  "i32": ctypes.c_int32,
  "f32": ctypes.c_float,
  "f64": ctypes.c_double,
  "bool": ctypes.c_bool,
}
_OPS = {
  "add": lambda a, b: a + b,
  "sub": lambda a, b: a - b,
  "mul": lambda a, b: a * b,
  "floordiv": lambda a, b: a // b,
  "mod": lambda a, b: a % b,
  "cdiv": lambda a, b: -(-a // b),
  "min": min,
  "max": max,
  "pow": lambda a, b: a**b,
  "eq": lambda a, b: int(a == b),
  "ne": lambda a, b: int(a != b),
  "lt": lambda a, b: int(a < b),
  "le": lambda a, b: int(a <= b),
  "and": lambda a, b: int(bool(a and b)),
  "or": lambda a, b: int(bool(a or b)),
  "not": lambda a: int(not a),
  "select": lambda a, b, c: b if a else c,
  "fadd": lambda a, b: a + b,
  "fsub": lambda a, b: a - b,
  "fmul": lambda a, b: a * b,
  "fdiv": lambda a, b: a / b,
  "fmin": min,
  "fmax": max,
  "feq": lambda a, b: int(a == b),
  "flt": lambda a, b: int(a < b),
  "fle": lambda a, b: int(a <= b),
  "fselect": lambda a, b, c: b if a else c,
  "float": float,
  "trunc": math.trunc,
  "floor": math.floor,
  "ceil": math.ceil,
  "sqrt": math.sqrt,
  "round": round,
  "fpow": lambda a, b: a**b,
  "bit_and": lambda a, b: a & b,
  "bit_or": lambda a, b: a | b,
  "bit_xor": lambda a, b: a ^ b,
  "shl": lambda a, b: a << b,
  "shr": lambda a, b: a >> b,
}
# The sizes that "NAME:sizes" returns, from the result of the operator; the first size of the result
# for an operator that is not listed.
SIZES = {}


class CheckFailed(Exception):
  pass


def tokens(text):
  found, at = [], 0
  while at < len(text):
    match = _TOKEN.match(text, at)
    if not match:
      raise SyntaxError(f"not a token: {text[at : at + 30]!r}")
    if not match.group().isspace() and match.group()[0] != "#":
      found.append(match.group())
    at = match.end()
  return found


class Reader:
  def __init__(self, text):
    self.tokens, self.at = tokens(text), 0

  def peek(self, ahead=0):
    return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

  def next(self, expected=None):
    token = self.peek()
    if expected is not None and token != expected:
      raise SyntaxError(
        f"{expected!r} was expected, not {token!r} in "
        f"{' '.join(self.tokens[self.at - 8 : self.at + 4])}"
      )
    self.at += 1
    return token

  def take(self, token):
    if self.peek() == token:
      self.at += 1
      return True
    return False

  def string(self):
    token = self.next()
    assert token[0] == '"', token
    return re.sub(
      r"\\(x..|.)",
      lambda m: (
        {"n": "\n", "t": "\t"}.get(m[1], m[1]) if m[1][0] != "x" else chr(int(m[1][1:], 16))
      ),
      token[1:-1],
    )

  def listed(self, close, item):
    items = []
    while not self.take(close):
      if items:
        self.next(",")
      items.append(item())
    return items

  def expr(self):
    token = self.next()
    if token in ("true", "false"):
      return int(token == "true")
    if re.fullmatch(r"-?\d+", token):
      return int(token)
    if re.fullmatch(r"-?(\d[\d.eE+-]*|inf)|nan", token):
      return float(token)
    if self.take("("):
      return (token, self.listed(")", self.expr))
    return token

  def exprs(self):
    self.next("[")
    return self.listed("]", self.expr)


class Program:
  """A parsed text. `run(target of the variant, inputs)` takes tensors and numbers by name and
  returns the outputs by name."""

  def __init__(self, path):
    self.folder = pathlib.Path(path).parent
    self.reader = Reader(pathlib.Path(path).read_text())
    self.asserts = []
    self.memory, self.images, self.kernels, self.targets, self.user = {}, {}, {}, {}, {}
    self.inputs, self.outputs, self.variants, self.steps = [], [], {}, []
    self._weights = None
    self._functions = {}  # by name: the outputs and variants of the functions after the first
    self._folded = []  # the constants that these compute, with the name of the function
    self._program()

  def _program(self):
    r = self.reader
    r.next("hir"), r.next("1")
    while r.peek():
      word = r.next()
      getattr(self, "_" + word)(r)

  def _producer(self, r):
    self.producer = r.string()

  def _user(self, r):
    key = r.string()
    self.user[key] = r.string()

  def _tree(self, r):
    self.tree = r.string()

  def _assert(self, r):
    self.asserts.append(r.string())

  def _target(self, r):
    name = r.next()
    self.targets[name] = (r.next(), r.string())

  def _dims(self, r):
    r.next("[")
    return [int(d) for d in r.listed("]", r.next)]

  def _constant(self, r):
    name, dtype, dims = r.next(), DTYPES[r.next()], self._dims(r)
    if r.take("folded_by"):
      self._folded.append((name, r.next()))
      return
    r.next("file")
    file = r.string()
    r.next("tensor")
    if self._weights is None:
      self._weights = safetensors.torch.load_file(self.folder / file)
    tensor = self._weights[r.string()]
    assert list(tensor.shape) == dims and tensor.dtype == dtype, name
    self._store(name, tensor)

  def _state(self, r):
    name, dtype, dims = r.next(), DTYPES[r.next()], self._dims(r)
    if r.take("constant"):
      self.memory[name] = self.memory[r.next()].clone()
    else:
      r.next("fill")
      value = r.expr()
      self._store(name, torch.full(dims, value, dtype=dtype))

  def _store(self, name, tensor):
    assert name not in self.memory, name
    flat = tensor.contiguous().flatten()
    self.memory[name] = (
      flat.view(torch.uint8).clone() if flat.numel() else torch.empty(0, dtype=torch.uint8)
    )

  def _image(self, r):
    name, target, form = r.next(), r.next(), r.next()
    assert target in self.targets
    file = self.folder / r.string()
    assert file.is_file()
    if form == "elf":
      self.images[name] = ctypes.CDLL(str(file))

  def _kernel(self, r):
    name, image, symbol = r.next(), r.next(), r.string()
    r.next("(")
    types = r.listed(")", r.next)
    while r.peek() in (
      "block",
      "shared",
      "cluster",
      "pdl_wait_first",
      "pdl_in_graph",
      "cooperative",
      "triggers_early",
    ):
      count = {"block": 3, "shared": 1, "cluster": 1}.get(r.next(), 0)
      for _ in range(count):
        r.next()
    if image in self.images:
      self.kernels[name] = (getattr(self.images[image], symbol), types, self.images[image])

  def _function(self, r):
    name = r.next()
    inputs, outputs, variants = self.inputs, self.outputs, self.variants
    if variants:
      outputs, variants = self._functions[name] = [], {}
    else:
      self.function = name
    r.next("{")
    while not r.take("}"):
      word = r.next()
      if word == "input":
        inputs.append(self._value(r))
      elif word == "output":
        outputs.append(self._value(r))
      else:
        assert word == "variant", word
        name = r.next()
        r.next("{")
        begin, depth = r.at, 1
        while depth:
          depth += {"{": 1, "}": -1}.get(r.next(), 0)
        variants[name] = (begin, r.at)

  def _value(self, r):
    value = {"name": r.next(), "kind": r.next(), "ranges": [], "align": 1}
    if value["kind"] == "tensor":
      value["dtype"] = DTYPES[r.next()]
      if r.take("rank"):
        value["rank"] = int(r.next())
      else:
        r.next("[")
        value["ranges"] = r.listed("]", lambda: self._range(r))
      if r.take("align"):
        value["align"] = int(r.next())
    elif value["kind"] == "int" and re.fullmatch(r"-?\d.*", r.peek()):
      value["ranges"] = [self._range(r)]
    return value

  def _range(self, r):
    low, dots, high = re.fullmatch(r"(-?\d+)(\.\.(\d+)?)?", r.next()).groups()
    if dots and high is None:
      return (int(low), float(r.next()))
    return (int(low), int(high if dots else low))

  # Execution

  def run(self, target, **arguments):
    self._fold(target)
    return self._run(self.inputs, self.outputs, self.variants[target], arguments)

  def _fold(self, target):
    """Computes the constants that the file does not have."""
    for function, (outputs, variants) in self._functions.items():
      names = [name for name, by in self._folded if by == function]
      if target in variants and names[0] not in self.memory:
        results = self._run([], outputs, variants[target], {})
        for name, result in zip(names, results.values(), strict=True):
          self._store(name, result)

  def _run(self, inputs, outputs, variant, arguments):
    begin, end = variant
    r = Reader("")
    r.tokens, r.at = self.reader.tokens[:end], begin
    self.scope, self.tensors, self.rows, self.log = {}, {}, {}, []
    self.brought, self.brings, self.loops = [], False, 0
    self.on_host, self.used = set(), []  # buffers on the host; those that a step uses
    for value in inputs:
      self._bind(value, arguments[value["name"]])
    while not r.take("return"):
      self._statement(r)
    r.next("(")
    results = r.listed(")", lambda: self._result(r))
    assert len(results) == len(outputs)
    for value, result in zip(outputs, results):
      if value["kind"] == "tensor":
        assert result.dtype == value["dtype"] and result.dim() == value["rank"], value
    return {value["name"]: result for value, result in zip(outputs, results)}

  def _bind(self, value, argument):
    if value["kind"] == "tensor":
      assert argument.dtype == value["dtype"] and argument.dim() == len(value["ranges"])
      for size, (low, high) in zip(argument.shape, value["ranges"]):
        if not low <= size <= high:
          raise CheckFailed(f"size {size} of {value['name']} not in {low}..{high}")
      self.tensors[value["name"]] = argument
    elif value["kind"] != "none":
      if value["ranges"] and not value["ranges"][0][0] <= argument <= value["ranges"][0][1]:
        raise CheckFailed(f"{value['name']} = {argument}")
      self.scope[value["name"]] = argument

  def _eval(self, e):
    if isinstance(e, (int, float)):
      return e
    if isinstance(e, str):
      return self.scope[e]
    op, args = e
    if op in ("size", "stride"):
      tensor = self.tensors[args[0]]
      return tensor.shape[args[1]] if op == "size" else tensor.stride(args[1])
    if op in ("result", "fresult"):
      return self.brought[args[0]]
    values = [self._eval(a) for a in args]
    if op == "range":
      if not values[1] <= values[0] <= values[2]:
        raise CheckFailed(f"{values[0]} not in {values[1]}..{values[2]}")
      return values[0]
    return _OPS[op](*values)

  def _statement(self, r):
    word = r.next()
    self.used = []
    if word not in ("read", "extern"):
      self.brings = False
    if word == "when":
      self._when(r)
    elif word == "loop":
      self._loop(r)
    elif word == "let":
      name = r.next()
      assert self.loops or name not in self.scope, name
      r.next("=")
      self.scope[name] = self._eval(r.expr())
    elif word.startswith("check"):
      self._check(word, r)
    elif word == "buffer":
      self._buffer(r)
    elif word == "launch":
      self._launch(r)
      assert not self.on_host.intersection(self.used), self.used
    elif word == "extern":
      self._extern(r)
      assert len({name in self.on_host for name in self.used}) < 2, self.used
    elif word == "copy":
      r.next("(")
      to, source = r.listed(")", lambda: self._argument(r))
      assert to.numel() == source.numel()
      to.copy_(source)
    elif word == "fill":
      dtype = DTYPES[r.next()]
      r.next("(")
      to, value = r.listed(")", lambda: self._argument(r))
      to.view(dtype).fill_(value)
      assert not self.on_host.intersection(self.used), self.used
    elif word == "read":
      dtype = DTYPES[r.next()]
      r.next("(")
      (view,) = r.listed(")", lambda: self._argument(r))
      self._bring(view.view(dtype)[0].item())
    else:
      raise SyntaxError(f"no statement {word!r}")
    if r.take("at"):
      self.log.append(r.string())

  def _bring(self, value):
    if not self.brings:
      self.brought, self.brings = [], True
    self.brought.append(value)

  def _when(self, r):
    taken = self._eval(r.expr())
    r.next("{")
    (self._block if taken else self._skip)(r)
    if r.take("else"):
      r.next("{")
      (self._skip if taken else self._block)(r)

  def _block(self, r):
    while not r.take("}"):
      self._statement(r)

  def _skip(self, r):
    """Sets the numbers of a block that does not run to 0."""
    depth = 1
    while depth:
      token = r.next()
      depth += {"{": 1, "}": -1}.get(token, 0)
      if token == "let":
        self.scope[r.next()] = 0
      elif token == "buffer":
        self.rows[r.next()] = torch.empty(0, dtype=torch.uint8)

  def _loop(self, r):
    r.next("{")
    begin = r.at
    self.loops += 1
    while True:
      while not r.take("while"):
        self._statement(r)
      if not self._eval(r.expr()):
        self._skip(r)
        break
      self._block(r)
      r.at = begin
    self.loops -= 1

  def _check(self, word, r):
    r.next("(")
    args = r.listed(")", r.expr)
    text = r.string() if r.peek()[:1] == '"' else ""
    if word == "check_stride":
      tensor = self.tensors[args[0]]
      ok = (
        tensor.numel() == 0
        or tensor.shape[args[1]] < 2
        or tensor.stride(args[1]) == self._eval(args[2])
      )
    else:
      values = [self._eval(a) for a in args]
      ok = {
        "check": lambda: values[0],
        "check_eq": lambda: values[0] == values[1],
        "check_le": lambda: values[0] <= values[1],
      }[word]()
    if not ok:
      raise CheckFailed(f"{word} {args} {text}")

  def _buffer(self, r):
    name = r.next()
    space = r.next() if r.take("of") else "arena"
    r.next("bytes")
    size = self._eval(r.expr())
    if r.take("align"):
      r.next()
    if r.take("on"):
      r.next("host")
      self.on_host.add(name)
    if space == "input":
      tensor = self.tensors[name]
      storage = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
      begin = tensor.storage_offset() * tensor.element_size()
      self.rows[name] = storage[begin : begin + size]
      assert self.rows[name].numel() == size, (name, size)
    else:
      # Memory that no step wrote is visible: it holds NaNs or negative numbers.
      self.rows[name] = torch.full((size,), 0xFF, dtype=torch.uint8)

  def _row(self, name):
    self.used.append(name)
    return self.rows[name] if name in self.rows else self.memory[name]

  def _argument(self, r):
    if r.peek() in ("read", "write", "both", "atomic"):
      r.next()
      if r.take("tensor"):
        return self._tensor(r)
      name = r.next()
      row = self._row(name)
      if r.peek() == "[":
        offset, extent = (self._eval(e) for e in r.exprs())
        assert 0 <= offset and offset + extent <= row.numel(), (name, offset, extent, row.numel())
        row = row[offset : offset + extent]
      return row
    if r.take("floats"):
      return [float(self._eval(e)) for e in r.exprs()]
    if r.take("tensors"):
      r.next("[")
      return r.listed("]", lambda: self._argument(r))
    if r.take("result"):
      return {"int": int, "float": float}[r.next()]
    if r.peek() == "[":
      return [self._eval(e) for e in r.exprs()]
    if r.peek()[:1] == '"':
      return r.string()
    if r.peek() in ("null", "none"):
      r.next()
      return None
    if r.take("dtype"):
      return DTYPES[r.next()]
    return self._eval(r.expr())

  def _tensor(self, r):
    name, dtype = r.next(), DTYPES[r.next()]
    sizes, strides = ([self._eval(e) for e in r.exprs()] for _ in range(2))
    offset = self._eval(r.expr()) if r.take("offset") else 0
    row = self._row(name)
    if not row.numel():
      return torch.empty(sizes, dtype=dtype)
    storage = row.untyped_storage()
    begin = row.storage_offset() + offset * dtype.itemsize
    assert all(sizes) is False or (
      begin + (sum((n - 1) * s for n, s in zip(sizes, strides)) + 1) * dtype.itemsize
      <= row.storage_offset() + row.numel()
    ), name
    assert begin % dtype.itemsize == 0
    return torch.empty(0, dtype=dtype).set_(storage, begin // dtype.itemsize, sizes, strides)

  def _launch(self, r):
    entry, types, image = self.kernels[r.next()]
    r.next("grid")
    r.next("(")
    assert [self._eval(e) for e in r.listed(")", r.expr)] == [1, 1, 1]
    r.next("(")
    args = r.listed(")", lambda: self._argument(r))
    assert len(args) == len(types), (args, types)
    cells = [
      ctypes.c_void_p(arg.data_ptr()) if kind == "ptr" else _C[kind](arg)
      for arg, kind in zip(args, types)
    ]
    params = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
    failed = entry(params)
    if failed:
      texts = (ctypes.c_char_p * failed).in_dll(image, "husk_texts")
      raise CheckFailed(texts[failed - 1].decode())

  def _extern(self, r):
    name = r.string()
    r.next("(")
    args = r.listed(")", lambda: self._argument(r))
    if name == "husk::linear":  # Husk's own, which torch cannot compute
      *operands, out = args
      out.copy_(_linear(*operands))
      return
    name, sizes, _ = name.partition(":sizes")
    if name.startswith("husk::"):
      _define_operators()
    namespace, rest = name.split("::")
    op, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
    schema = op._schema.arguments
    if torch.Tag.nondeterministic_seeded in op.tags and "attention" not in name:
      args = args[:-1]  # the state of the generator
    full_name = f"{name}:sizes" if sizes else name
    if workspaces.length(full_name, {s.name: a for s, a in zip(schema, args)}) is not None:
      args = args[:-1]
    flags = [
      bool(a) if str(s.type) == "bool" else torch.device("cpu") if str(s.type) == "Device" else a
      for a, s in zip(args, schema)
    ]
    if "attention" in name:  # keys and values of 16 bits for queries in f32, which torch refuses
      flags[1:3] = (one.to(flags[0].dtype) for one in flags[1:3])
    positional = [a for a, s in zip(flags, schema) if not s.kwarg_only]
    named = {s.name: a for a, s in zip(flags, schema) if s.kwarg_only}
    returned = op(*positional, **named)
    outputs = args[len(schema) :]
    leaves = torch.utils._pytree.tree_leaves
    if sizes:
      returned = SIZES.get(name, lambda *results: [results[0].shape[0]])(
        *(returned if isinstance(returned, tuple) else [returned])
      )
      assert len(returned) == len(outputs), name
    if len(returned := leaves(returned)) != len(
      outputs := leaves(outputs)
    ):  # an argument that is also a result
      outputs = [
        to
        for to in outputs
        if not isinstance(to, torch.Tensor)
        or to.data_ptr()
        not in [a.data_ptr() for a in leaves(args[: len(schema)]) if isinstance(a, torch.Tensor)]
      ]
    for result, to in zip(returned, outputs):
      if isinstance(to, type):
        self._bring(to(result))
      elif to is not None and result is not None:  # torch may return no tensor for an empty one
        to.copy_(result)

  def _result(self, r):
    kind = r.next()
    if kind == "none":
      return None
    if kind in ("int", "float"):
      return self._eval(r.expr())
    return self._tensor(r)


def _linear(x, weight, bias, residual, activation):
  result = ACTIVATIONS[activation](F.linear(x, weight, bias))
  return result if residual is None else result + residual
