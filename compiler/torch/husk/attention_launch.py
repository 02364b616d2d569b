"""The launches of the attention kernels (attention_kernel.py, attention_hopper_kernel.py) for a node of attention.py: tiles by a
rule, and about it where kernels are measured, and a kernel for the constants of the call.
"""

import dataclasses
import functools
import math
import pathlib
import re

import sympy

from . import extern, hir, lines, versions
from .errors import Unsupported


# Tiles


@dataclasses.dataclass(frozen=True)
class Tiles:
  m: int
  n: int
  warps: int
  stages: int
  registers: int | None = None     # of a thread at most, for more blocks to fit a multiprocessor; some are spilled for it


def shared(tile, width, bytes_):
  """About what a block wants of shared memory: a tile of q, and tiles of k and v for each stage but the one at work."""
  return (tile.m + 2 * tile.n * max(tile.stages - 1, 1)) * width * bytes_


def tiles(target, width, bytes_, rows, masked=False):
  """The tiles to try, best first, for heads of up to `width` elements of so many bytes; `rows` is how many rows there can be
  at most (None: any number). They were chosen so that ptxas spills little or nothing, and so that two blocks fit a
  multiprocessor where that costs no reuse."""
  few = rows is not None and rows <= 16
  some = rows is not None and rows <= 64
  hopper = target.major >= 9
  if bytes_ == 4:
    if few:
      best = Tiles(16, 64, 4, 2) if width <= 128 else Tiles(16, 32, 8, 2)
    elif width <= 64:
      best = Tiles(64, 32, 4 if hopper else 8, 2)
    else:
      best = Tiles(32, 32, 8, 2) if width <= 128 else Tiles(16, 32, 8, 2)
  elif few:
    best = Tiles(16, 128 if hopper and width <= 128 else 64, 4, 3 if width <= 128 else 2)
  elif some and width <= 128:
    best = Tiles(64, 64, 4, 2)
  elif width <= 64:
    best = Tiles(128, 64, 8 if masked else 4, 3) if hopper else Tiles(128, 32, 4, 3)
  elif width <= 128:
    best = Tiles(64, 64, 4, 3) if hopper and not masked else Tiles(128, 64, 8, 3 if hopper else 2)
  else:
    best = Tiles(128, 32, 8, 3) if hopper else Tiles(64, 32, 8, 2)
  tried = [dataclasses.replace(best, stages=stages) for stages in range(best.stages, 0, -1)]
  tried += [Tiles(min(best.m, 64), 16, 4, 1), Tiles(16, 16, 4, 1)]
  fitting = [tile for tile in tried if shared(tile, width, bytes_) <= target.shared_memory_per_block_optin]
  return fitting or tried[-1:]     # the compiler has the last word


def cache(target):
  """How many bytes of k and v to count on: the cache is two halves that keep copies of each other's lines, and others use it."""
  return target.L2_cache_size // 16


def neighbours(target, width, bytes_, best):
  """Tiles that differ from `best` in one thing, for measuring."""
  changes = [{"m": best.m * 2}, {"m": best.m // 2}, {"n": best.n * 2}, {"n": best.n // 2}, {"warps": best.warps * 2},
             {"warps": best.warps // 2}, {"stages": best.stages + 1}, {"stages": best.stages - 1}]
  made = [dataclasses.replace(best, **change) for change in changes]
  return [tile for tile in made if 16 <= tile.m <= 128 and 16 <= tile.n <= 128 and 2 <= tile.warps <= 8 and tile.stages > 0 and
          shared(tile, width, bytes_) <= target.shared_memory_per_block_optin]


def splits(target, blocks, keys):
  """Into how many parts to split the keys, of which there are at most or about `keys`, for a few `blocks` to become so many
  that all multiprocessors work; a part is worth 256 keys."""
  return max(1, min(2 * target.multi_processor_count // max(blocks, 1), keys // 256, 32))


def pieces(size):
  """(first, rest): powers of two, from 16 on, whose sum holds `size`; the second is 0 if the first is enough."""
  def above(number):
    return max(16, 1 << (number - 1).bit_length())

  half = max(16, above(size) // 2)
  rest = above(size - half) if size > half else 0
  return (half, rest) if rest < half else (above(size), 0)


# Launches


class _Call:
  """A call of a kernel of attention_kernel.py that is being put together: a value for each of its parameters. Numbers that
  are known become constants of the kernel."""

  def __init__(self, converter, kernel):
    self.converter, self.kernel = converter, kernel
    self.signature, self.constants, self.values, self.aligned = {}, {}, {}, []

  def pointer(self, name, tensor, kind):
    """`tensor` is an _At."""
    self.signature[name], self.values[name] = f"*{kind}", tensor
    if tensor.aligned:
      self.aligned.append(name)

  def constant(self, **values):
    for name, value in values.items():
      self.signature[name], self.constants[name] = "constexpr", value

  def number(self, name, value):
    from torch._inductor.virtualized import V
    value = sympy.sympify(value)
    self.values[name] = value
    if value.is_Integer and abs(int(value)) < 2**24:     # so that tiles reach it with 32 bits
      self.constant(**{name: int(value)})
      return
    self.signature[name] = "i64"
    if V.graph.sizevars.statically_known_multiple_of(value, 16):
      self.aligned.append(name)

  def rows(self, name, value, times=1):
    """A number of rows, of which the kernel counts `times` as many, with 32 bits: checked where nothing says it."""
    from torch._inductor.virtualized import V
    value, limit = sympy.sympify(value), 2**31 - 2**16
    if not V.graph.sizevars.statically_known_leq(value * times, limit):
      head = (f"check({self.converter.exprs.int(sympy.Le(value * times, limit))}) "
              f"{hir.quoted(f'attention counts to {limit} rows')}")
      if not any(said.head == head for said in self.converter.statements):
        self.converter.say(head)
    self.number(name, value)
    if name not in self.constants:
      self.signature[name] = "i32"
      self.aligned = [each for each in self.aligned if each != name]

  def strides(self, prefix, dims, strides):
    for dim, stride in zip(dims, strides):
      self.number(f"{prefix}_{dim}", stride)

  def launch(self, name, configs, grid, extra, origin):
    """`grid` has three expressions in Python over `extra`, {name: value}, with what a configuration decides in braces."""
    converter = self.converter
    target = converter.backend.target
    converter.backend.define_kernel(name, _definition(name, self, configs, grid, list(extra), target))
    arguments = converter.backend.kernel(name).arguments
    given = [*(self.values.get(argument) for argument in arguments), *extra.values()]
    made = converter.backend.call_kernel(name, given, converter.ranges, lambda at: at.extent)
    texts = []
    for kind, *rest in made.arguments:
      texts.append("null" if kind == "null" else converter._value(rest[0]) if kind == "value" else
                   rest[1].view(converter, rest[0]))
    converter.say(f"launch {made.kernel} grid ({', '.join(map(converter.exprs.int, made.grid))})", texts, origin)


@dataclasses.dataclass
class _At:
  """Memory that a kernel gets: `offset` and `extent` in bytes."""

  buffer: hir.Buffer
  offset: object
  extent: object
  aligned: bool

  @staticmethod
  def of(converter, node):
    from torch._inductor.virtualized import V
    name, sizes, strides, dtype, extra = lines.unwrapped(node)
    at = converter.known_place(name)
    offset = sympy.expand(at.offset + extra)
    known = at.buffer.space != "input" or at.buffer.align % converter.backend.alignment == 0 and at.buffer.align > 0
    return _At(at.buffer, offset, converter.span(sizes, strides) * dtype.itemsize,
               known and bool(V.graph.sizevars.statically_known_multiple_of(offset, converter.backend.alignment)))

  @staticmethod
  def new(converter, name, sizes):
    """A buffer of f32."""
    import torch
    from torch._inductor import ir
    buffer = converter.declare(name, sizes, ir.FlexibleLayout.contiguous_strides(sizes), torch.float32)
    return _At(buffer, sympy.Integer(0), sympy.prod(sizes) * 4, True)

  def view(self, converter, access):
    converter.note(access, self.buffer)
    if self.offset == 0:
      return hir.View(access, self.buffer)
    return hir.View(access, self.buffer, converter.exprs.int(self.offset), converter.exprs.int(self.extent))


class _Attention:
  """An Attention node in numbers: sizes and strides of q, k, v and the result, as of tensors of rank 4."""

  def __init__(self, converter, node):
    self.converter, self.node = converter, node
    self.query, self.key, self.value, *mask = node.inputs
    self.mask = mask[0] if mask else None
    for output in node.outputs:
      extern.declared(converter, None, output)
    self.out, *lse = (_At.of(converter, output) for output in node.outputs)
    self.lse = lse[0] if lse else None
    self.given = [_At.of(converter, tensor) for tensor in (self.query, self.key, self.value)]
    tensors = (self.query, self.key, self.value, node.outputs[0])
    ((self.batches, self.q_heads, self.queries, size), self.q_strides), ((_, heads, self.keys, _), self.k_strides), (
        (_, _, _, v_size), self.v_strides), (_, self.out_strides) = (_four(lines.unwrapped(tensor)) for tensor in tensors)
    self.heads, self.group = int(heads), int(self.q_heads) // int(heads)
    self.size, self.v_size = int(size), int(v_size)
    self.dtype = self.query.get_dtype()
    self.kind = _KINDS[str(self.dtype)]
    self.rows = self.queries * self.group                       # of a head of k
    self.all_rows = self.batches * self.q_heads * self.queries
    self.origin = converter.origin(node.outputs[0])

  def tiles(self):
    backend, width, rows = self.converter.backend, max(self.size, self.v_size), _most(self.converter, self.rows)
    ruled = tiles(backend.target, width, self.dtype.itemsize, rows, self.mask is not None)
    more = neighbours(backend.target, width, self.dtype.itemsize, ruled[0]) if backend.tuning.measures else []
    return ruled + [tile for tile in more if tile not in ruled]

  def suits_hopper(self):
    """Whether attention_hopper can make it, and is the faster one: it takes longer to begin, which few queries feel. Its copies
    are of 16 bytes, and strides of rows that it would have to compute with want more registers than the copying warps have."""
    from torch._inductor.virtualized import V
    if (self.converter.backend.target.capability != 90 or self.mask is not None or self.dtype.itemsize != 2 or
        self.size != self.v_size or self.size not in HOPPER):
      return False
    strides = [self.q_strides, self.k_strides, self.v_strides, self.out_strides]
    if not (all(each.aligned for each in (*self.given, self.out)) and all(sympy.sympify(of[2]).is_Integer for of in strides) and
            all(V.graph.sizevars.statically_known_multiple_of(stride, 16) for of in strides for stride in of[:3])):
      return False
    most = _most(self.converter, self.rows)
    return most is None or most > 256

  def parts(self, block_m):
    rows = _most(self.converter, self.rows)
    if rows is None or rows > 64:
      return 1
    blocks = versions.size_hint(self.batches) * self.heads * -(-rows // block_m)
    keys = _most(self.converter, self.keys, 2**20) or versions.size_hint(self.keys)
    return splits(self.converter.backend.target, blocks, keys)


_KINDS = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.bool": "i1"}


def launch(converter, node):
  """Writes the launches of an Attention node."""
  its = _Attention(converter, node)
  tried = its.tiles()
  parts = its.parts(tried[0].m)
  hopper = parts == 1 and its.suits_hopper()
  call = _Call(converter, "attention_hopper" if hopper else "attention")
  for name, given, strides in zip("qkv", its.given, (its.q_strides, its.k_strides, its.v_strides)):
    call.pointer(name, given, its.kind)
    call.strides(name, _BATCH_HEAD_ROW, strides)
  made = _results(call, its, parts)
  call.rows("queries", its.queries, its.group)
  call.rows("keys", its.keys)
  call.constant(factor=node.scale * math.log2(math.e), HEADS=its.heads, GROUP=its.group, CAUSAL=bool(node.causal), SIZE=its.size)
  name = "_".join(["attention", hir.dtype(its.dtype), str(its.size), *["causal"] * bool(node.causal),
                   *["mask"] * (its.mask is not None)])
  pairs = its.batches * its.heads
  if hopper:
    call.rows("pairs", pairs)
    blocks = converter.backend.target.multi_processor_count
    call.launch(name, [_hopper(its.size)], (f"min(-(rows // -128) * all_pairs, {blocks})", "1", "1"),
                {"rows": its.rows, "all_pairs": pairs}, its.origin)
    return
  _mask(call, its)
  if parts == 1:
    call.constant(out_split=0, lse_split=0)
  (first, rest), (v_first, v_rest) = pieces(its.size), pieces(its.v_size)
  call.constant(SPLITS=parts, FIRST=first, REST=rest, V_SIZE=its.v_size, V_FIRST=v_first, V_REST=v_rest,
                PRECISION=precision(its.dtype), CACHE=cache(converter.backend.target))
  configs = [{"BLOCK_M": tile.m, "BLOCK_N": tile.n, "num_warps": tile.warps, "num_stages": tile.stages,
              "maxnreg": tile.registers} for tile in tried]
  call.launch(name, configs, ("-(rows // -{BLOCK_M}) * pairs", str(parts), "1"), {"rows": its.rows, "pairs": pairs}, its.origin)
  if parts > 1:
    _join(its, parts, made)


# Sizes of a row that attention_hopper takes, and what measured best on an H200: keys of a tile, tiles of k and of v in shared memory
# (three long ones of each would not fit), registers of a thread that computes.
HOPPER = {64: (128, 3, 232), 128: (128, 2, 224)}


def _hopper(size):
  """The configuration of attention_hopper."""
  keys, stages, registers = HOPPER[size]
  return {"BLOCK_N": keys, "STAGES": stages, "REGISTERS": registers, "num_warps": 4, "num_stages": 1, "maxnreg": None}


def _mask(call, its):
  if its.mask is None:
    call.constant(mask=None)
    strides = [0, 0, 0, 0]
  else:
    call.pointer("mask", _At.of(its.converter, its.mask), _KINDS[str(its.mask.get_dtype())])
    strides = _broadcast(its.mask, len(lines.unwrapped(its.query)[1]))
  call.strides("mask", (*_BATCH_HEAD_ROW, "column"), strides)


_BATCH_HEAD_ROW = ("batch", "head", "row")


def _results(call, its, parts):
  """Where the kernel writes to: the node's results, or (what of each part, its weights), which it returns."""
  if parts == 1:
    call.pointer("out", its.out, its.kind)
    call.strides("out", _BATCH_HEAD_ROW, its.out_strides)
    call.pointer("lse", its.lse, "fp32") if its.lse else call.constant(lse=None)
    return None
  sizes = [parts, its.batches, its.q_heads, its.queries]
  made = (_At.new(its.converter, "attention_parts", [*sizes, its.v_size]),
          _At.new(its.converter, "attention_weights", sizes))
  call.pointer("out", made[0], "fp32")
  call.strides("out", _BATCH_HEAD_ROW, [its.q_heads * its.queries * its.v_size, its.queries * its.v_size, its.v_size])
  call.number("out_split", its.all_rows * its.v_size)
  call.pointer("lse", made[1], "fp32")
  call.number("lse_split", its.all_rows)
  return made


def _join(its, parts, made):
  call = _Call(its.converter, "attention_joined")
  call.pointer("parts", made[0], "fp32")
  call.pointer("weights", made[1], "fp32")
  call.pointer("out", its.out, its.kind)
  call.pointer("lse", its.lse, "fp32") if its.lse else call.constant(lse=None)
  call.number("rows", its.all_rows)
  call.number("queries", its.queries)
  call.strides("out", _BATCH_HEAD_ROW, its.out_strides)
  call.constant(HEADS=int(its.q_heads), SPLITS=parts, SPLITS_WIDTH=1 << (parts - 1).bit_length(), SIZE=its.v_size,
                WIDTH=1 << (its.v_size - 1).bit_length())
  call.launch(f"attention_joined_{its.v_size}", [{"num_warps": 4, "num_stages": 1}], ("blocks", "1", "1"),
              {"blocks": its.all_rows}, its.origin)


def precision(dtype):
  """How products are made. f32 as three of 11 bits each, unless the user lets torch itself be content with one."""
  import torch
  if dtype != torch.float32:
    return "ieee"
  return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


def _most(converter, rows, largest=2**16):
  """How many there can be at most; None if that is not known, or many."""
  from torch.utils._sympy.value_ranges import bound_sympy
  upper = bound_sympy(sympy.sympify(rows), converter.ranges).upper
  return int(upper) if upper.is_Integer and upper <= largest else None


def _four(tensor):
  """(sizes, strides) with a batch and a head: of rank 3 the batch is there, of rank 2 neither."""
  sizes, strides = list(tensor[1]), list(tensor[2])
  at = {4: [], 3: [1], 2: [0, 0]}[len(sizes)]
  for dim in at:
    sizes.insert(dim, sympy.Integer(1))
    strides.insert(dim, sympy.Integer(0))
  return sizes, strides


def _broadcast(mask, rank):
  """The strides of a mask as of a tensor of rank 4; where it has one for all, it does not move."""
  name, sizes, strides, *_ = lines.unwrapped(mask)
  more = [sympy.Integer(1)] * (rank - len(sizes))
  strides = [sympy.Integer(0) if size == 1 else stride for size, stride in zip(sizes, strides)]
  return _four((name, more + list(sizes), [sympy.Integer(0)] * len(more) + strides))[1]


@functools.cache
def _sources():
  """Kernel -> (imports, functions) of the file that has it."""
  found = {}
  for file in ("attention_kernel.py", "attention_hopper_kernel.py"):
    text = versions.gluon((pathlib.Path(__file__).parent / file).read_text())
    begin = re.search(r"^@\w+\.jit$", text, re.M).start()
    imports = text[text.index('"""\n', 3) + 4:begin].strip()
    found.update({name: (imports, text[begin:]) for name in re.findall(r"^def ([a-z]\w*)\(", text, re.M)})
  return found


def _definition(name, call, configs, grid, extra, target):
  """The definition of a kernel as Inductor writes those of others."""
  imports, source = _sources()[call.kernel]
  header = re.search(rf"(@\w+\.jit)\ndef {call.kernel}\((.*?)\):\n", source, re.S)
  parameters = [part.split(":")[0].strip() for part in header.group(2).split(",")]
  aligned = {(parameters.index(each),): [["tt.divisibility", 16]] for each in call.aligned}
  missing = set(parameters) - set(call.signature) - {key for config in configs for key in config}
  if missing:
    raise ValueError(f"kernel {call.kernel}: nothing is given for {', '.join(sorted(missing))}")
  signature = {each: call.signature.get(each, "constexpr") for each in parameters}
  constants = {each: call.constants[each] for each in parameters if each in call.constants}
  device = (f"DeviceProperties(type='cuda', index=0, multi_processor_count={target.multi_processor_count}, "
            f"cc={target.capability}, major={target.major}, regs_per_multiprocessor={target.regs_per_multiprocessor}, "
            f"max_threads_per_multi_processor={target.max_threads_per_multi_processor}, "
            f"max_threads_per_block={target.max_threads_per_block}, warp_size={target.warp_size})")
  # How many registers a thread may have is none of what Inductor looks a grid up by.
  grids = [{"config": {key: value for key, value in config.items() if key != "maxnreg"},
            "python": [side.format(**config) for side in grid]} for config in configs]
  meta = {"grid_type": "PrecomputedGrid", "precomputed_grids": grids, "extra_launcher_args": extra, "kernel_name": name,
          "assert_indirect_indexing": False}
  decorator = (f"@triton_heuristics.user_autotune(configs={configs!r}, filename=__file__,\n"
               f"    triton_meta={{'signature': {signature!r},\n"
               f"                 'device': {device},\n"
               f"                 'constants': {constants!r}, 'configs': [{aligned!r}]}},\n"
               f"    inductor_meta={meta!r})\n")
  source = "".join([source[:header.start()], decorator, header.group(1), f"\ndef {name}({header.group(2)}):\n",
                    source[header.end():]])
  # Inductor reads a limit of registers and forgets to pass it on.
  source += (f"\n\n_options = {name}._create_compile_options\n"
             f"{name}._create_compile_options = lambda config, meta: {{**_options(config, meta), 'maxnreg': config.maxnreg}}\n")
  module = (f"{imports}\nfrom torch._inductor.runtime import triton_heuristics\n"
            "from torch._inductor.runtime.hints import DeviceProperties\n\n\n" + source)
  return f"async_compile.triton({name!r}, {module!r}, device_str='cuda')"
