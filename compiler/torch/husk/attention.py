"""Attention on a CUDA target as a kernel of our own (attention_kernel.py), the way "flash"; "decompose" makes products and a
softmax of it (decompositions.py), as everything does that the kernel does not cover (`uncovered`).

`rewritten` puts `husk::attention` where a program calls attention, before torch decomposes anything; Inductor lowers it to a
node of ours (`lowerings`), and `launch` writes the launches of the kernel with the constants of that call.
"""

import dataclasses
import functools
import math
import pathlib
import re

import sympy

from . import hir
from .errors import Unsupported

WAYS = ("flash", "decompose")
LARGEST_HEAD = 256


def check_way(way):
  if way not in WAYS:
    raise ValueError(f"attention={way!r}: give one of {', '.join(map(repr, WAYS))}")
  return way


# The operator


@functools.cache
def operators():
  """(husk::attention, husk::attention_with_lse), defined once a process. `inner`: the result lies in memory as the heads of
  each query, as eager's often does, and not as the queries of each head; what follows may rely on either."""
  import torch
  arguments = "(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float scale, bool inner)"
  for name, returns, fake in (("attention", "Tensor", _fake), ("attention_with_lse", "(Tensor, Tensor)", _fake_with_lse)):
    torch.library.define(f"husk::{name}", f"{arguments} -> {returns}", tags=(torch.Tag.flexible_layout,))
    torch.library.register_fake(f"husk::{name}", fake)
  return torch.ops.husk.attention.default, torch.ops.husk.attention_with_lse.default


def _fake(query, key, value, mask, causal, scale, inner):
  shape = [*query.shape[:-1], value.shape[-1]]
  if not inner:
    return query.new_empty(shape)
  shape[-3], shape[-2] = shape[-2], shape[-3]
  return query.new_empty(shape).transpose(-3, -2)


def _fake_with_lse(query, key, value, mask, causal, scale, inner):
  import torch
  return _fake(query, key, value, mask, causal, scale, inner), query.new_empty(query.shape[:-1], dtype=torch.float32)


def found(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
  """What stands for attention that Inductor recognises in the products and the softmax of a model: its own replacement would be
  taken apart again, into more than there was."""
  import torch
  if uncovered(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    return torch.ops.aten.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                                       enable_gqa=enable_gqa)
  scale = query.shape[-1] ** -0.5 if scale is None else scale
  return operators()[0](query, key, value, attn_mask, is_causal, float(scale), False)


# What a program calls


def rewritten(exported, note):
  """A copy of a program in which attention is an operator of ours, as far as the kernel covers it; `note` is told, in words,
  what it does not. The program itself if it has none."""
  import copy
  import torch
  calls = _calls()
  modules = [module for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
  if not any(node.target in calls for module in modules for node in module.graph.nodes):
    return exported
  made = exported._update(copy.deepcopy(exported.graph_module), copy.deepcopy(exported.graph_signature))
  made.example_inputs = exported.example_inputs
  for module in made.graph_module.modules():
    if isinstance(module, torch.fx.GraphModule):
      for node in list(module.graph.nodes):
        if node.target in calls:
          _rewrite(module.graph, node, note)
      module.recompile()
  from . import versions
  return versions.with_guards(made, exported)


@functools.cache
def _calls():
  """Operators that are attention; all but the first return a tuple whose first is the result. What is second: the log-sum-exp,
  or something else."""
  import torch
  found = {torch.ops.aten.scaled_dot_product_attention.default: None}
  for name, has_lse in (("flash_attention", True), ("efficient_attention", True), ("cudnn_attention", True),
                        ("flash_attention_for_cpu", True), ("fused_attention_overrideable", True), ("attention_math", False)):
    packet = getattr(torch.ops.aten, f"_scaled_dot_product_{name}", None)
    if packet is not None:
      found[packet.default] = has_lse
  return found


def _rewrite(graph, node, note):
  import operator
  import torch
  from .lines import place
  composite = torch.ops.aten.scaled_dot_product_attention.default
  given = _arguments(node)
  has_lse = _calls()[node.target]
  parts = {} if has_lse is None else {user: user.args[1] for user in node.users if user.target is operator.getitem}
  used = {index for user, index in parts.items() if user.users}
  if has_lse is not None and (len(parts) < len(node.users) or not used or used - ({0, 1} if has_lse else {0})):
    return      # it stays what it is
  values = {name: value.meta["val"] if isinstance(value, torch.fx.Node) else value for name, value in given.items()}
  why = uncovered(**values) or _uncovered_results(node, used)
  if why:
    note(f"attention is products and a softmax ({place(node.meta.get('stack_trace')) or node.name}): {why}")
    if 1 in used:
      return
  # Outputs of a program go by the names of nodes, so one of those that are there becomes the call.
  firsts = [user for user, index in parts.items() if index == 0]
  call = node if has_lse is None or 1 in used else firsts[0]
  if why:
    call.target = torch.ops.aten.scaled_dot_product_attention.default
    call.args = tuple(given[name] for name in ("query", "key", "value", "mask", "dropout", "causal"))
    call.kwargs = {"scale": given["scale"], "enable_gqa": given["gqa"]}
  else:
    result = call.meta["val"] if call.meta["val"] is not None and 1 not in used else node.meta["val"][0]
    inner = result.dim() == 4 and _is(result.stride(1), result.shape[-1])
    scale = given["scale"] if given["scale"] is not None else values["query"].shape[-1] ** -0.5
    call.target = operators()[1 in used]
    call.args, call.kwargs = (*(given[name] for name in ("query", "key", "value", "mask", "causal")), float(scale), inner), {}
  if 1 in used:
    call.meta["val"] = tuple(call.meta["val"][:2])
  for user in [user for user, index in parts.items() if not user.users and user is not call]:
    graph.erase_node(user)
  if call is not node:
    for user in firsts[1:]:
      user.replace_all_uses_with(call)
      graph.erase_node(user)
    graph.erase_node(node)


def _arguments(node):
  """The arguments of a call by the names that we give them, however the operator at hand calls them."""
  given = {argument.name: argument.default_value if argument.has_default_value() else None
           for argument in node.target._schema.arguments}
  given.update(zip(given, node.args))
  given.update(node.kwargs)
  return {"query": given["query"], "key": given["key"], "value": given["value"],
          "mask": given.get("attn_mask", given.get("attn_bias")), "dropout": given["dropout_p"],
          "causal": given["is_causal"], "scale": given["scale"], "gqa": given.get("enable_gqa", False)}


def _is(one, other):
  """Whether two sizes are known to be equal; asks for no guard."""
  return isinstance(one, int) and isinstance(other, int) and one == other or (
      not isinstance(one, int) and not isinstance(other, int) and one.node.expr == other.node.expr)


def uncovered(query, key, value, mask, dropout, causal, scale, gqa):
  """Why the kernel does not cover attention over these (fake) tensors, in words; None if it does."""
  import torch
  if dropout:
    return f"dropout of {dropout}"
  if query.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {key.dtype, value.dtype} != {query.dtype}:
    return f"elements of {query.dtype}, {key.dtype} and {value.dtype}"
  rank = query.dim()
  if not 2 <= rank <= 4 or key.dim() != rank or value.dim() != rank:
    return f"tensors of rank {rank}, {key.dim()} and {value.dim()}"
  for size in (query.shape[-1], value.shape[-1]):
    if not isinstance(size, int) or not 1 <= size <= LARGEST_HEAD:
      return f"a head size of {size}; at most {LARGEST_HEAD}, known when it is exported, is covered"
  heads = [tensor.shape[-3] if rank > 2 else 1 for tensor in (query, key, value)] if rank == 4 else [1, 1, 1]
  if not all(isinstance(count, int) and count > 0 for count in heads) or heads[1] != heads[2] or heads[0] % heads[1]:
    return f"{heads[0]} heads over {heads[1]} and {heads[2]}"
  if heads[0] != heads[1] and heads[1] != 1 and not gqa:
    return f"{heads[0]} heads over {heads[1]} without enable_gqa"
  pairs = [(key.shape[-2], value.shape[-2]), (query.shape[-1], key.shape[-1])]
  if rank > 2:
    pairs += [(query.shape[0], key.shape[0]), (query.shape[0], value.shape[0])]
  if not all(_is(one, other) for one, other in pairs):
    return f"shapes {_shape(query)}, {_shape(key)} and {_shape(value)}"
  if scale is not None and not (isinstance(scale, (int, float)) and 0 < scale < float("inf")):
    return f"a scale of {scale}"
  if mask is not None:
    if mask.dtype not in (torch.bool, torch.float16, torch.bfloat16, torch.float32) or mask.dim() > rank:
      return f"a mask of {mask.dtype} and rank {mask.dim()}"
  return None


def _uncovered_results(node, used):
  """The efficient kernel's log-sum-exp is padded."""
  if 1 not in used:
    return None
  result, lse = node.meta["val"][:2]
  return None if lse.dim() == result.dim() - 1 and all(map(_is, lse.shape, result.shape)) else "a log-sum-exp that is padded"


def _shape(tensor):
  return f"[{', '.join(map(str, tensor.shape))}]"


# Inductor's node


@functools.cache
def _node_class():
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class Attention(ir.ExternKernel):
    """`inputs` are query, key, value and, if there is one, the mask; `outputs` the result and maybe the log-sum-exp."""

    def __init__(self, inputs, causal, scale):
      super().__init__(None, ir.MultiOutputLayout(device=inputs[0].get_device()), self.unwrap_storage(inputs))
      self.causal, self.scale, self.outputs = causal, scale, []
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def should_allocate(self):
      return False

    def codegen(self, wrapper):
      from .capture import NodeLine
      wrapper.writeline(NodeLine(self))

  return Attention


def lowerings():
  """{operator: lowering}, for Inductor."""
  return {op: functools.partial(_lowered, with_lse) for with_lse, op in enumerate(operators())}


def _lowered(with_lse, query, key, value, mask, causal, scale, inner):
  import torch
  from torch._inductor import ir
  from torch._inductor.virtualized import V
  inputs = [_dense(tensor) for tensor in (query, key, value)] + ([] if mask is None else [_realized(mask)])
  node = _node_class()(inputs, causal, scale)
  size = [*query.get_size()[:-1], value.get_size()[-1]]
  # Where it is no output, whose layout is fixed: as the heads of each query, what follows can mostly take it as it is.
  inner = inner or not any(user.op == "output" for user in V.graph.current_node.users)
  order = [0, 2, 1, 3] if inner and len(size) == 4 else range(len(size))
  strides, dense = [None] * len(size), sympy.Integer(1)
  for dim in reversed(order):
    strides[dim], dense = dense, dense * size[dim]
  made = [(query.get_dtype(), size, strides)]
  if with_lse:
    made.append((torch.float32, size[:-1], ir.FlexibleLayout.contiguous_strides(size[:-1])))
  node.outputs = [ir.MultiOutput(ir.FixedLayout(query.get_device(), dtype, sizes, strides), node, [(tuple, index)], True)
                  for index, (dtype, sizes, strides) in enumerate(made)]
  results = tuple(ir.TensorBox.create(output) for output in node.outputs)
  return results if with_lse else results[0]


def _realized(tensor):
  from torch._inductor import ir
  tensor = ir.ExternKernel.realize_input(tensor)
  ir.as_storage_and_layout(tensor, freeze=True)
  return tensor


def _dense(tensor):
  """A tensor in memory whose rows are dense."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V
  tensor = _realized(tensor)
  if V.graph.sizevars.statically_known_equals(tensor.get_stride()[-1], 1) or tensor.get_size()[-1] == 1:
    return tensor
  return ir.ExternKernel.require_contiguous(ir.ExternKernel.copy_input(tensor))


# Tiles


@dataclasses.dataclass(frozen=True)
class Tiles:
  m: int
  n: int
  warps: int
  stages: int


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
    best = Tiles(16, 64, 4, 3 if width <= 128 else 2)
  elif some and width <= 128:
    best = Tiles(64, 64, 4, 2)
  elif width <= 64:
    best = Tiles(128, 64, 8 if masked else 4, 3) if hopper else Tiles(128, 32, 4, 3)
  elif width <= 128:
    best = Tiles(128, 64, 8, 3 if hopper else 2)
  else:
    best = Tiles(128, 32, 8, 3) if hopper else Tiles(64, 32, 8, 2)
  tried = [dataclasses.replace(best, stages=stages) for stages in range(best.stages, 0, -1)]
  tried += [Tiles(min(best.m, 64), 16, 4, 1), Tiles(16, 16, 4, 1)]
  return [tile for tile in tried if shared(tile, width, bytes_) <= target.shared_memory_per_block_optin]


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

  def number(self, name, value, kind="i64", limit=2**24):
    """`limit`: what a constant may be, so that tiles reach it with 32 bits."""
    from torch._inductor.virtualized import V
    value = sympy.sympify(value)
    self.values[name] = value
    if value.is_Integer and abs(int(value)) < limit:
      self.constant(**{name: int(value)})
      return
    self.signature[name] = kind
    if kind == "i32":
      limit = 2**31 - 2**16
      if not V.graph.sizevars.statically_known_leq(value, limit):
        head = f"check({self.converter.exprs.int(sympy.Le(value, limit))}) {hir.quoted(f'attention over at most {limit} rows')}"
        if not any(said.head == head for said in self.converter.statements):
          self.converter.say(head)
    elif V.graph.sizevars.statically_known_multiple_of(value, 16):
      self.aligned.append(name)

  def strides(self, prefix, strides):
    for dim, stride in strides.items():
      self.number(f"{prefix}_{dim}", stride)

  def launch(self, name, configs, grid, extra, origin):
    """`grid` has three expressions in Python over the kernel's parameters and `extra`, {name: value}."""
    converter = self.converter
    target = converter.backend.target
    converter.backend.define_kernel(name, _definition(name, self, configs, grid, list(extra), target))
    arguments = converter.backend.kernel(name).arguments
    given = [*(self.values.get(argument) for argument in arguments), *extra.values()]
    made = converter.backend.call_kernel(name, given, converter.ranges)
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
    from .lines import unwrapped
    name, sizes, strides, dtype, extra = unwrapped(node)
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


def launch(converter, node):
  """Writes the launches of an Attention node."""
  import torch
  from . import extern
  from .lines import unwrapped
  query, key, value, *mask = node.inputs
  for output in node.outputs:
    extern._declared(converter, operators()[0], output)
  shapes = [_four(unwrapped(tensor)) for tensor in (query, key, value, node.outputs[0])]
  (batches, q_heads, queries, size), _ = shapes[0]
  (_, heads, keys, _), _ = shapes[1]
  v_size = int(shapes[2][0][3])
  group, size = int(q_heads) // int(heads), int(size)
  dtype = query.get_dtype()
  kind = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.bool: "i1"}
  target, origin = converter.backend.target, converter.origin(node.outputs[0])
  rows = _most(converter, queries * group)
  tried = tiles(target, max(size, v_size), dtype.itemsize, rows, bool(mask))
  parts = 1
  if rows is not None and rows <= 64:
    from . import versions
    blocks = versions.size_hint(batches) * int(heads) * -(-rows // tried[0].m)
    parts = splits(target, blocks, _most(converter, keys, 2**20) or versions.size_hint(keys))

  call = _Call(converter, "attention")
  for name, tensor, (_, strides) in zip("qkv", (query, key, value), shapes):
    call.pointer(name, _At.of(converter, tensor), kind[dtype])
    call.strides(name, dict(zip(("batch", "head", "row"), strides)))
  if mask:
    _, strides = _broadcast(unwrapped(mask[0]), len(unwrapped(query)[1]))
    call.pointer("mask", _At.of(converter, mask[0]), kind[mask[0].get_dtype()])
  else:
    strides = [0, 0, 0, 0]
    call.constant(mask=None)
  call.strides("mask", dict(zip(("batch", "head", "row", "column"), strides)))
  out, *lse = (_At.of(converter, output) for output in node.outputs)
  results = [sympy.sympify(n) for n in (batches, q_heads, queries, v_size)]
  out_strides = dict(zip(("batch", "head", "row"), shapes[3][1]))
  all_rows = sympy.prod(results[:3])
  if parts == 1:
    call.pointer("out", out, kind[dtype])
    call.strides("out", {**out_strides, "split": 0})
    call.constant(lse_split=0)
    call.pointer("lse", lse[0], "fp32") if lse else call.constant(lse=None)
  else:
    made = _At.new(converter, "attention_parts", [parts, *results]), _At.new(converter, "attention_weights", [parts, *results[:3]])
    call.pointer("out", made[0], "fp32")
    call.strides("out", {"batch": results[1] * results[2] * v_size, "head": results[2] * v_size, "row": v_size,
                         "split": all_rows * v_size})
    call.pointer("lse", made[1], "fp32")
    call.number("lse_split", all_rows)
  call.number("queries", queries, "i32")
  call.number("keys", keys, "i32")
  (first, rest), (v_first, v_rest) = pieces(size), pieces(v_size)
  call.constant(factor=node.scale * math.log2(math.e), HEADS=int(heads), GROUP=group, CAUSAL=bool(node.causal), SPLITS=parts,
                SIZE=size, FIRST=first, REST=rest, V_SIZE=v_size, V_FIRST=v_first, V_REST=v_rest, PRECISION=precision(dtype))
  name = "_".join(["attention", hir.dtype(dtype), str(size), *["causal"] * bool(node.causal), *["mask"] * len(mask)])
  configs = [{"BLOCK_M": t.m, "BLOCK_N": t.n, "num_warps": t.warps, "num_stages": t.stages} for t in tried]
  call.launch(name, configs, ("cdiv(rows, BLOCK_M) * pairs", str(parts), "1"),
              {"rows": queries * group, "pairs": batches * heads}, origin)
  if parts > 1:
    _join(converter, parts, made, out, lse, kind[dtype], all_rows, results, out_strides, origin)


def _join(converter, parts, made, out, lse, kind, rows, results, strides, origin):
  call = _Call(converter, "attention_joined")
  call.pointer("parts", made[0], "fp32")
  call.pointer("weights", made[1], "fp32")
  call.pointer("out", out, kind)
  call.pointer("lse", lse[0], "fp32") if lse else call.constant(lse=None)
  call.number("rows", rows)
  call.number("queries", results[2])
  call.strides("out", strides)
  size = int(results[3])
  call.constant(HEADS=int(results[1]), SPLITS=parts, SPLITS_WIDTH=1 << (parts - 1).bit_length(), SIZE=size,
                WIDTH=1 << (size - 1).bit_length())
  call.launch(f"attention_joined_{size}", [{"num_warps": 4, "num_stages": 1}], ("blocks", "1", "1"), {"blocks": rows}, origin)


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
  """(sizes, strides) of a mask as of a tensor of rank 4; where it has one for all, it does not move."""
  name, sizes, strides, *rest = mask
  more = rank - len(sizes)
  strides = [0 if size == 1 else stride for size, stride in zip(sizes, strides)]
  return _four((name, [sympy.Integer(1)] * more + list(sizes), [sympy.Integer(0)] * more + strides))


@functools.cache
def _source():
  """attention_kernel.py without its head."""
  text = (pathlib.Path(__file__).parent / "attention_kernel.py").read_text()
  return text[text.index("@triton.jit"):]


def _definition(name, call, configs, grid, extra, target):
  """The definition of a kernel as Inductor writes those of others."""
  source = _source()
  header = re.search(rf"@triton\.jit\ndef {call.kernel}\((.*?)\):\n", source, re.S)
  if not header:
    raise Unsupported(f"no kernel {call.kernel} in attention_kernel.py")
  parameters = [part.split(":")[0].strip() for part in header.group(1).split(",")]
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
  meta = {"grid_type": "FixedGrid", "fixed_grid": list(grid), "extra_launcher_args": extra, "kernel_name": name,
          "assert_indirect_indexing": False}
  decorator = (f"@triton_heuristics.user_autotune(configs={configs!r}, filename=__file__,\n"
               f"    triton_meta={{'signature': {signature!r},\n"
               f"                 'device': {device},\n"
               f"                 'constants': {constants!r}, 'configs': [{aligned!r}]}},\n"
               f"    inductor_meta={meta!r})\n")
  source = (source[:header.start()] + decorator + "@triton.jit\n" + f"def {name}({header.group(1)}):\n" + source[header.end():])
  module = ("import triton\nimport triton.language as tl\nfrom torch._inductor.runtime import triton_heuristics\n"
            "from torch._inductor.runtime.hints import DeviceProperties\n\n\n" + source)
  return f"async_compile.triton({name!r}, {module!r}, device_str='cuda')"
