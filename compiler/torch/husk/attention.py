"""Attention on a CUDA target as a kernel of our own (attention_kernel.py), the way "flash"; "decompose" makes products and a
softmax of it (decompositions.py), as everything does that the kernel does not cover (`uncovered`).

`rewritten` puts `husk::attention` where a program calls attention, before torch decomposes anything; Inductor lowers it to a
node of ours (`lowerings`), which attention_launch.py makes launches of.
"""

import functools

import sympy

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
  """What stands for attention that Inductor recognises in the products and the softmax of a model: its own replacement would
  be taken apart again, into more than there was."""
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
  """Operators that are attention, and whether the log-sum-exp is the second of the tuple that they return; None for the one
  that returns none."""
  import torch
  found = {torch.ops.aten.scaled_dot_product_attention.default: None}
  for name in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu",
               "fused_attention_overrideable", "attention_math"):
    packet = getattr(torch.ops.aten, f"_scaled_dot_product_{name}", None)
    if packet is not None:
      found[packet.default] = name != "attention_math"
  return found


def _rewrite(graph, node, note):
  import operator
  import torch
  from .lines import place
  has_lse = _calls()[node.target]
  parts = {} if has_lse is None else {user: user.args[1] for user in node.users if user.target is operator.getitem}
  used = {index for user, index in parts.items() if user.users}
  if has_lse is not None and (len(parts) < len(node.users) or not used or used - ({0, 1} if has_lse else {0})):
    return      # it stays what it is
  given = _arguments(node)
  values = {name: value.meta["val"] if isinstance(value, torch.fx.Node) else value for name, value in given.items()}
  why = uncovered(**values) or _uncovered_results(node, values, used)
  if why:
    becomes = "stays an operator of torch" if 1 in used else "is products and a softmax"
    note(f"attention {becomes} ({place(node.meta.get('stack_trace')) or node.name}): {why}")
    if 1 in used:
      return
  # Outputs of a program go by the names of nodes, so one of those that are there becomes the call.
  firsts = [user for user, index in parts.items() if index == 0 and user.users]
  call = node if has_lse is None or 1 in used else firsts[0]
  if why:
    call.target = torch.ops.aten.scaled_dot_product_attention.default
    call.args = tuple(given[name] for name in ("query", "key", "value", "mask", "dropout", "causal"))
    call.kwargs = {"scale": given["scale"], "enable_gqa": given["gqa"]}
  else:
    result = node.meta["val"][0] if 1 in used else call.meta["val"]
    inner = result.dim() == 4 and _is(result.stride(1), result.shape[-1])
    scale = given["scale"] if given["scale"] is not None else values["query"].shape[-1] ** -0.5
    call.target = operators()[1 in used]
    call.args = (*(given[name] for name in ("query", "key", "value", "mask", "causal")), float(scale), inner)
    call.kwargs = {}
  if 1 in used:
    call.meta["val"] = tuple(call.meta["val"][:2])
  _without(graph, node, call, [user for user in parts if not user.users], firsts)


def _without(graph, node, call, unused, firsts):
  """Removes what `call` made superfluous."""
  for user in unused:
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
          "causal": given["is_causal"], "scale": given["scale"], "gqa": given.get("enable_gqa", True)}


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


def _uncovered_results(node, values, used):
  """The same of what an operator returns. The efficient one pads its log-sum-exp; the flash and cuDNN ones, unlike the others,
  let the last query see all keys."""
  result, lse = node.meta["val"][:2] if 1 in used else (None, None)
  if 1 in used and not (lse.dim() == result.dim() - 1 and all(map(_is, lse.shape, result.shape))):
    return "a log-sum-exp that is padded"
  from_the_end = str(node.target).split(".")[1] in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention")
  if from_the_end and values["causal"] and not _is(values["query"].shape[-2], values["key"].shape[-2]):
    raise Unsupported(f"{node.target} with is_causal and other numbers of queries and keys: call "
                      "torch.nn.functional.scaled_dot_product_attention")
  return None


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
