"""Random programs of operators of PyTorch's database, for random_models.py.

`program_of(seed)` returns a program: sources (inputs, parameters, buffers) with their values at
several assignments of sizes, and nodes that call operators. The first assignment is the export's,
the others are sizes that it does not see. Each node was tried in eager mode at all of them.

Expected results come with what is uncertain about them. A program runs in eager mode, in float64,
and several times with each result of a node changed by a few units in the last place. Where these
runs differ in a value that is no float, nobody can say what is right, and nothing is compared; for
floats, the tolerance grows with the difference."""

import contextlib
import copy
import dataclasses
import functools
import itertools
import random
import warnings

import torch
from compile_operators import UNWRITTEN, database
from export_operators import RANDOM
from torch.utils import _pytree as pytree

ASSIGNMENTS = 4
JITTERS = 6
LARGEST = 30.0  # a larger float result is squashed by the next node

# Dtypes of values, and how often a conversion takes them.
DTYPES = {
  torch.float32: 30,
  torch.float64: 8,
  torch.bfloat16: 8,
  torch.float16: 8,
  torch.int64: 8,
  torch.int32: 6,
  torch.uint8: 3,
  torch.int16: 2,
  torch.int8: 2,
  torch.bool: 3,
  torch.complex64: 4,
}
DOUBLE = {
  torch.float32: torch.float64,
  torch.float16: torch.float64,
  torch.bfloat16: torch.float64,
  torch.complex64: torch.complex128,
}

# Operators that cannot be compared: random or unwritten results, results that are no tensors,
# results that equal arguments do not determine (the signs of vectors, the pivots of a singular
# matrix), sparse tensors, those whose results depend on the strides of their arguments, and
# polygamma, which has poles where eager mode returns the noise of its arithmetic.
# The last ones use indices or pivots that eager mode does not check.
EXCLUDED = (
  UNWRITTEN
  | RANDOM
  | {
    "as_strided",
    "as_strided_copy",
    "as_strided_scatter",
    "allclose",
    "broadcast_shapes",
    "equal",
    "geqrf",
    "item",
    "jiterator_2inputs_2outputs",
    "jiterator_4inputs_with_extra_args",
    "jiterator_binary",
    "jiterator_binary_return_by_ref",
    "jiterator_unary",
    "linalg.eig",
    "linalg.eigh",
    "linalg.eigvals",
    "linalg.householder_product",
    "linalg.lstsq",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.matrix_rank",
    "linalg.pinv",
    "linalg.qr",
    "linalg.svd",
    "lu",
    "native_dropout_backward",
    "nextafter",
    "nn.functional.multi_head_attention_forward",
    "normal_in_place",
    "ormqr",
    "pca_lowrank",
    "pinverse",
    "polygamma",
    "qr",
    "resize_",
    "resize_as_",
    "signbit",
    "sparse.mm",
    "sparse.sampled_addmm",
    "svd",
    "svd_lowrank",
    "to_sparse",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
    "_segment_reduce",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "linalg.ldl_solve",
    "linalg.lu_solve",
    "lu_solve",
    "lu_unpack",
    "max_pool2d_with_indices_backward",
  }
)
# Sizes that the data decides.
DATA = {"argwhere", "masked_select", "nonzero", "unique", "unique_consecutive", "repeat_interleave"}
# Operators that write places by indices: if a place has two values, either may stay.
PLACES = {
  "index_copy",
  "index_fill",
  "index_put",
  "put",
  "scatter",
  "nn.functional.max_unpool1d",
  "nn.functional.max_unpool2d",
  "nn.functional.max_unpool3d",
}
# Operators whose second results are places of values, which ties do not determine.
TIES = {"kthvalue", "median", "mode", "nanmedian", "sort", "topk", "cummax", "cummin"}
# Operators of which eager mode computes six digits in float64: ATen has the coefficients of the
# Cephes library, but not the leading 1 of its denominators. CUDA's functions have eleven digits.
INEXACT = {
  "special.bessel_j0",
  "special.bessel_j1",
  "special.bessel_y0",
  "special.bessel_y1",
}
# Operators that tell 0.0 from -0.0.
ZEROS = {"angle", "atan2", "copysign", "reciprocal", "sgn", "heaviside"}


@dataclasses.dataclass(frozen=True)
class Ref:
  """A value of the program."""

  id: int


@dataclasses.dataclass(frozen=True)
class Size:
  """A size of a value."""

  id: int
  dim: int


@dataclasses.dataclass
class Source:
  id: int
  role: str  # input, parameter or buffer
  values: list  # for each assignment
  own: bool = False  # the values of a sample


@dataclasses.dataclass
class Node:
  name: str
  leaves: list
  tree: object
  results: list  # ids of the tensors that the call returns
  branches: list | None = None  # for a torch.cond: pairs of nodes and the id of the result
  effect: bool = False  # whether it writes a buffer or an input

  def refs(self):
    return [leaf.id for leaf in self.leaves if isinstance(leaf, (Ref, Size))]


class Rejected(Exception):
  """The generator does not want this program."""


# Functions


taken = []  # the arguments of `samples` in this process


@functools.cache
def operators():
  """The operators of the database by name."""
  warnings.simplefilter("ignore")
  return {op.formatted_name: op for op in database() if op.name not in EXCLUDED}


@functools.cache
def samples(name, dtype):
  """Some samples of an operator, from a fixed seed."""
  taken.append((name, dtype))
  torch.manual_seed(5)
  random.seed(5)
  op = operators()[name]
  kept = []
  try:
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 60):
      leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
      tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
      simple = all(t.layout == torch.strided and 0 < t.numel() < 5000 for t in tensors)
      drops = sample.kwargs.get("dropout_p")
      if (
        tensors
        and simple
        and not drops
        and "out" not in sample.kwargs
        and not any(map(callable, leaves))
      ):
        leaves = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in leaves]
        kept.append((leaves, tree))
  except Exception:  # whatever the database's own code raises
    pass
  return kept


def _squash(x, low, high):
  return torch.sigmoid(x) * (high - low) + low


def _slice_write(x, factor):
  x = x.clone()
  x[..., 1:].mul_(factor)
  return x


def _select_write(x, value):
  x = x.clone()
  x.select(0, 0).add_(value)
  x.transpose(0, -1)[0].fill_(value)
  return x


def _mask_write(x, value):
  x = x.clone()
  x[x > value] = value
  return x


def _alias_chain(x):
  y = x.clone()
  z = y.flatten()
  z[::2].add_(1)
  return y, z


def _buffer_add(buffer, x):
  buffer.add_(x)
  return buffer.clone()


def _buffer_shift(buffer, x):
  buffer[1:].copy_(buffer[:-1].clone())
  buffer[0].copy_(x)
  return buffer * 1


def _buffer_mean(buffer, x):
  before = buffer.clone()
  buffer.mul_(0.5).add_(x, alpha=0.5)
  return before


# Functions that are no operator of the database, or that adapt values for one.
OWN = {
  "to": lambda x, dtype: x.to(dtype),
  "squash": _squash,
  "tame": lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0).clamp(-4, 4),
  "tame_int": lambda x: x.remainder(7),
  "flatten_first": lambda x: x.flatten(0, 1),
  "select_last": lambda x: x[..., 0],
  "transposed": lambda x: x.transpose(0, -1),
  "mean_dim": lambda x, dim: x.mean(dim),
  "amax_dim": lambda x, dim: x.amax(dim),
  "unsqueeze_first": lambda x: x.unsqueeze(0),
  "repeat_new": lambda x, n: x.unsqueeze(-1).expand(*x.shape, n),
  "real": lambda x: torch.view_as_real(x).sum(-1),
  "slice_write": _slice_write,
  "select_write": _select_write,
  "mask_write": _mask_write,
  "alias_chain": _alias_chain,
  "buffer_add": _buffer_add,
  "buffer_shift": _buffer_shift,
  "buffer_mean": _buffer_mean,
  "mean_all": lambda x: x.mean(),
  "narrow_half": lambda x, dim: x.narrow(dim, 0, (x.shape[dim] + 1) // 2),
  "skip_two": lambda x, dim: x.movedim(dim, 0)[::2].movedim(0, dim),
  "split_add": lambda x, dim: sum(x.movedim(dim, 0).unflatten(0, (-1, 1)).unbind(1)),
  "reshape_rows": lambda x: x.reshape(x.shape[0], -1),
  "cat_self": lambda x, dim: torch.cat([x, x.flip(dim)], dim),
}


def call(name, tree, leaves):
  if name in OWN:
    return OWN[name](*pytree.tree_unflatten(leaves, tree))
  operand, args, kwargs = pytree.tree_unflatten(leaves, tree)
  return operators()[name].op(operand, *args, **kwargs)


def execute(nodes, env, double=False, jitter=None, exporting=False):
  """Runs nodes; `env` has the tensors by id."""
  for node in nodes:
    leaves = []
    for leaf in node.leaves:
      if isinstance(leaf, Ref):
        leaf = env[leaf.id]
      elif isinstance(leaf, Size):
        leaf = env[leaf.id].shape[leaf.dim]
      elif double and isinstance(leaf, torch.dtype):
        leaf = DOUBLE.get(leaf, leaf)
      leaves.append(leaf)
    if node.branches:
      results = branch(node, leaves, double, jitter, exporting)
    else:
      results = call(node.name, node.tree, leaves)
    tensors = [one for one in pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
    if len(tensors) != len(node.results):
      raise Rejected(f"{node.name} returns {len(tensors)} tensors")
    if jitter:
      places = {one.untyped_storage().data_ptr() for one in leaves if isinstance(one, torch.Tensor)}
      tensors = [
        one if one.untyped_storage().data_ptr() in places else jitter(one) for one in tensors
      ]
    env.update(zip(node.results, tensors))
  return env


def branch(node, leaves, double, jitter, exporting):
  predicate, *operands = leaves
  ids = [leaf.id for leaf in node.leaves[1:]]
  if exporting:
    functions = [branch_function(nodes, ids, result) for nodes, result in node.branches]
    return torch.cond(predicate, *functions, tuple(operands))
  nodes, result = node.branches[0 if bool(predicate) else 1]
  return execute(nodes, dict(zip(ids, operands)), double, jitter)[result].clone()


def branch_function(nodes, ids, result):
  """A function that Dynamo traces: it has the calls of the nodes as lines."""
  names, lines = {}, []
  for node in nodes:
    names[f"call_{len(names)}"] = OWN[node.name] if node.name in OWN else operators()[node.name].op
    parts = []
    for leaf in node.leaves:
      if isinstance(leaf, Ref):
        parts.append(f"v{leaf.id}")
      else:
        names[f"value_{len(names)}"] = leaf
        parts.append([*names][-1])
    name = next(n for n in reversed(names) if n.startswith("call_"))
    lines.append(f"  v{node.results[0]} = {name}({', '.join(parts)})")
  arguments = ", ".join(f"v{id}" for id in ids)
  exec(f"def run({arguments}):\n" + "\n".join(lines) + f"\n  return v{result}.clone()", names)
  return names["run"]


def jittered(generator):
  """A function that changes floats by a few units in the last place."""

  def change(tensor):
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
      return tensor
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    whole = real == real.round()
    if bool(whole.all()):
      return tensor
    noise = torch.rand(real.shape, generator=generator, dtype=torch.float64) * 2 - 1
    eps = torch.finfo(real.dtype).eps
    out = (real.double() * (1 + 2 * eps * noise)).to(real.dtype)
    return torch.view_as_complex(out.contiguous()) if tensor.is_complex() else out

  return change


# Programs


class Model(torch.nn.Module):
  def __init__(self, program):
    super().__init__()
    self.program = program
    for source in program.sources:
      if source.role == "parameter":
        self.register_parameter(
          f"p{source.id}", torch.nn.Parameter(source.values[0].clone(), False)
        )
      elif source.role == "buffer":
        self.register_buffer(f"b{source.id}", source.values[0].clone())

  def forward(self, *tensors):
    program, inputs, env = self.program, iter(tensors), {}
    for source in program.sources:
      if source.role == "input":
        env[source.id] = next(inputs)
      else:
        env[source.id] = getattr(self, f"{source.role[0]}{source.id}")
    execute(program.nodes, env, exporting=True)
    return tuple(env[result] for result in program.outputs)


@dataclasses.dataclass
class Expected:
  eager: torch.Tensor
  double: torch.Tensor | None
  jittered: list


@dataclasses.dataclass
class Program:
  seed: int
  sizes: list  # a text for each assignment
  sources: list
  nodes: list
  outputs: list

  @property
  def written(self):
    """Positions of inputs that the program writes."""
    inputs = [source.id for source in self.sources if source.role == "input"]
    names = {leaf for node in self.nodes if node.effect for leaf in node.refs()[:1]}
    return {n for n, one in enumerate(inputs) if one in names}

  def inputs(self, number):
    return tuple(clone(source.values[number]) for source in self.sources if source.role == "input")

  def dynamic_shapes(self):
    shapes = []
    for source in self.sources:
      if source.role == "input":
        shapes.append(
          {
            dim: torch.export.Dim.AUTO(min=1, max=64)
            for dim in range(source.values[0].ndim)
            if len({value.shape[dim] for value in source.values}) > 1
          }
        )
    return (tuple(shapes),)

  def exported(self):
    model = Model(self).eval()
    with torch.no_grad():
      return torch.export.export(
        model, self.inputs(0), dynamic_shapes=self.dynamic_shapes(), strict=False
      )

  def runs(self, exported):
    """The assignments that the exported program takes. Where it computes something else than eager
    mode the program is not ours to compare."""
    allowed = []
    states = {name: value.clone() for name, value in exported.state_dict.items()}
    for number in range(len(self.sizes)):
      if self._within(exported, number):
        try:
          with torch.no_grad():
            results = exported.module()(*self.inputs(number))
        except Exception:
          continue
        if [one.shape for one in results] == [one.shape for one in self._shapes(number)]:
          allowed.append(number)
    with torch.no_grad():
      for name, value in states.items():
        exported.state_dict[name].copy_(value)
    return allowed

  def _within(self, exported, number):
    """Whether the sizes of inputs are in the ranges that the export found, which its module does
    not check."""
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
    for node, value in zip(nodes[-len(self.inputs(number)) :], self.inputs(number), strict=True):
      for size, actual_size in zip(node.meta["val"].shape, value.shape, strict=True):
        if isinstance(size, int):
          if size != actual_size:
            return False
        elif size.node.expr.is_Symbol:
          limits = exported.range_constraints[size.node.expr]
          if not limits.lower <= actual_size <= limits.upper:
            return False
    return True

  def _shapes(self, number):
    return self._run([number])[0][: len(self.outputs)]

  def _run(self, numbers, **options):
    """The results of each run of a sequence, after which come the inputs that are written."""
    double = options.get("double")
    env = {
      source.id: as_double(source.values[0]) if double else clone(source.values[0])
      for source in self.sources
      if source.role != "input"
    }
    results = []
    with torch.no_grad(), default_dtype(torch.float64 if double else torch.float32):
      for number in numbers:
        for source in self.sources:
          if source.role == "input":
            value = clone(source.values[number])
            env[source.id] = as_double(value) if double else value
        values = execute(self.nodes, dict(env), **options)
        outputs = [values[result].clone() for result in self.outputs]
        inputs = [source.id for source in self.sources if source.role == "input"]
        outputs += [env[inputs[n]].clone() for n in sorted(self.written)]
        results.append(outputs)
    return results

  def expected(self, numbers):
    eager = self._run(numbers)
    try:
      double = self._run(numbers, double=True)
    except Exception:  # an operator without float64, or one that wants equal dtypes
      double = None
    others = []
    for seed in range(JITTERS):
      generator = torch.Generator().manual_seed(seed)
      try:
        others.append(self._run(numbers, jitter=jittered(generator)))
      except Exception as error:
        raise Rejected(f"unstable: {error}") from None
    return [
      [
        Expected(one, double and double[run][place], [other[run][place] for other in others])
        for place, one in enumerate(results)
      ]
      for run, results in enumerate(eager)
    ]

  def names(self):
    return {name for node in self._all_nodes() for name in [node.name] if name not in ADAPTERS}

  def _all_nodes(self):
    for node in self.nodes:
      yield node
      for nodes, _ in node.branches or ():
        yield from nodes

  def pairs(self):
    """The names of operators of which one feeds the other, at most through adapters."""
    origins, found = {}, set()
    for node in self._all_nodes():
      before = {name for ref in node.refs() for name in origins.get(ref, ())}
      after = before if node.name in ADAPTERS else {node.name}
      if node.name not in ADAPTERS:
        found |= {(name, node.name) for name in before}
      for result in node.results:
        origins[result] = after
    return found

  def text(self):
    lines = []
    for source in self.sources:
      first = source.values[0]
      shapes = list(dict.fromkeys(tuple(value.shape) for value in source.values))
      lines.append(
        f"  v{source.id} = {source.role} {str(first.dtype)[6:]} "
        + " then ".join(map(str, shapes))
        + ("" if first.is_contiguous() else f" strides {first.stride()}")
      )
    lines += node_lines(self.nodes, "  ")
    return "\n".join(
      [f"seed {self.seed}:", *lines, "  return " + ", ".join(f"v{x}" for x in self.outputs)]
    )

  def save(self, path):
    torch.save(self, path)

  # Smaller programs

  def without_dead(self):
    """This program without the nodes and sources that no output needs."""
    needed, kept = set(self.outputs), []
    buffers = {source.id for source in self.sources if source.role != "parameter"}
    for node in reversed(self.nodes):
      effect = node.effect and any(ref in needed for ref in node.refs() if ref in buffers)
      if effect or any(result in needed for result in node.results):
        kept.append(node)
        needed.update(node.refs())
    sources = [source for source in self.sources if source.id in needed]
    return dataclasses.replace(self, nodes=kept[::-1], sources=sources)

  def smaller(self):
    for output in self.outputs if len(self.outputs) > 1 else ():
      yield dataclasses.replace(self, outputs=[output]).without_dead()
    values = self._all_values()
    for index in reversed(range(len(self.nodes))):
      node = self.nodes[index]
      if node.effect or set(node.results) & set(self.outputs):
        continue
      sources = [
        Source(result, "input", [clone(value[result]) for value in values])
        for result in node.results
      ]
      nodes = self.nodes[:index] + self.nodes[index + 1 :]
      yield dataclasses.replace(self, nodes=nodes, sources=self.sources + sources).without_dead()
    for index, node in enumerate(self.nodes):
      for result, ref in itertools.product(node.results, node.refs()):
        one, other = values[0][result], values[0].get(ref)
        if other is None or one.shape != other.shape or one.dtype != other.dtype:
          continue
        yield self._renamed(index, result, ref).without_dead()
    for index, source in enumerate(self.sources):
      if source.role == "buffer" and not any(
        node.effect and source.id in node.refs() for node in self.nodes
      ):
        sources = list(self.sources)
        sources[index] = dataclasses.replace(source, role="parameter")
    for index, node in enumerate(self.nodes):
      if node.effect and not set(node.results) & set(self.outputs):
        yield dataclasses.replace(
          self, nodes=self.nodes[:index] + self.nodes[index + 1 :]
        ).without_dead()

  def _renamed(self, index, result, ref):
    """This program with uses of `result` replaced by `ref`, and without the node."""

    def renamed(leaf):
      if isinstance(leaf, Ref) and leaf.id == result:
        return Ref(ref)
      if isinstance(leaf, Size) and leaf.id == result:
        return Size(ref, leaf.dim)
      return leaf

    nodes = [
      dataclasses.replace(node, leaves=[renamed(leaf) for leaf in node.leaves])
      for node in self.nodes[:index] + self.nodes[index + 1 :]
      if not node.branches or result not in node.refs()
    ]
    outputs = [ref if output == result else output for output in self.outputs]
    return dataclasses.replace(self, nodes=nodes, outputs=outputs)

  def _all_values(self):
    """Values by id for each assignment."""
    found = []
    for number in range(len(self.sizes)):
      env = {
        source.id: clone(source.values[min(number, len(source.values) - 1)])
        for source in self.sources
      }
      with torch.no_grad():
        found.append(execute(self.nodes, env))
    return found


def node_lines(nodes, space):
  lines = []
  for node in nodes:
    parts = []
    for leaf in node.leaves:
      if isinstance(leaf, Ref):
        parts.append(f"v{leaf.id}")
      elif isinstance(leaf, Size):
        parts.append(f"v{leaf.id}.shape[{leaf.dim}]")
      else:
        parts.append(repr(leaf))
    results = ", ".join(f"v{result}" for result in node.results)
    tree = node.tree
    arguments = ", ".join(parts)
    if tree is not None and not isinstance(tree, str):
      with contextlib.suppress(Exception):
        shaped = pytree.tree_unflatten([_Text(part) for part in parts], tree)
        if node.name in OWN:
          arguments = ", ".join(map(repr, shaped))
        else:
          operand, args, kwargs = shaped
          arguments = ", ".join(
            [repr(operand), *map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]
          )
    lines.append(f"{space}{results} = {node.name}({arguments})")
    for inner, result in node.branches or ():
      lines += [f"{space}  branch:", *node_lines(inner, space + "    "), f"{space}    v{result}"]
  return lines


class _Text(str):
  def __repr__(self):
    return str(self)


def clone(tensor):
  """A copy with the same strides."""
  if tensor.is_contiguous():
    return tensor.clone()
  return copy.deepcopy(tensor)


def as_double(tensor):
  return tensor.to(DOUBLE.get(tensor.dtype, tensor.dtype))


@contextlib.contextmanager
def default_dtype(dtype):
  before = torch.get_default_dtype()
  torch.set_default_dtype(dtype)
  try:
    yield
  finally:
    torch.set_default_dtype(before)


# Comparison


def _plain(tensor):
  if tensor.is_complex():
    tensor = torch.view_as_real(tensor.resolve_conj())
  return tensor.double() if tensor.is_floating_point() else tensor


def difference(results, expected):
  """A text about the first result that is wrong, or none."""
  if len(results) != len(expected):
    return f"{len(results)} results, eager has {len(expected)}"
  for place, (one, wanted) in enumerate(zip(results, expected)):
    if text := _difference(one.detach(), wanted):
      return f"result {place}: {text}"
  return None


def _difference(result, wanted):
  eager = wanted.eager
  if result.dtype != eager.dtype:
    return f"{result.dtype}, eager has {eager.dtype}"
  if result.shape != eager.shape:
    return f"shape {tuple(result.shape)}, eager has {tuple(eager.shape)}"
  if any(other.shape != eager.shape for other in wanted.jittered) or not eager.numel():
    return None
  ours, theirs = _plain(result), _plain(eager)
  others = [_plain(other) for other in wanted.jittered]
  exact = wanted.double
  exact = _plain(exact) if exact is not None and exact.shape == eager.shape else None
  if not theirs.is_floating_point():
    stable = torch.ones_like(theirs, dtype=torch.bool)
    for other in [*others, *([exact] if exact is not None and exact.dtype == theirs.dtype else [])]:
      stable &= other == theirs
    wrong = stable & (ours != theirs)
    return _text_of(wrong, ours, theirs)
  finite = theirs.isfinite()
  for other in others:
    finite &= other.isfinite()
  same = ~theirs.isfinite()
  for other in others:
    same &= (other == theirs) | (other.isnan() & theirs.isnan())
  if exact is not None:
    same &= (exact == theirs) | (exact.isnan() & theirs.isnan())
    finite &= exact.isfinite()
  wrong = same & ~((ours == theirs) | (ours.isnan() & theirs.isnan()))
  if text := _text_of(wrong, ours, theirs):
    return text
  if not finite.any():
    return None
  eps = torch.finfo(eager.dtype).eps
  scale = theirs[finite].abs().max()
  spread = torch.stack([(other - theirs).abs() for other in others]).amax(0)
  base, error = theirs, 0.0
  if exact is not None:
    error = (exact - theirs).abs()[finite].max()
    if error < 1000 * max(spread[finite].max(), eps * scale):
      base = exact
    else:
      error = 0.0
  allowed = 6 * spread + 8 * error + 32 * eps * scale + torch.finfo(eager.dtype).tiny * 16
  off = (ours - base).abs()
  return _text_of(finite & ~(off <= allowed), ours, theirs)


def _text_of(wrong, ours, theirs):
  if not wrong.any():
    return None
  place = wrong.nonzero()[0].tolist()
  return (
    f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, at {place} "
    f"{ours[tuple(place)].item()} and not {theirs[tuple(place)].item()}"
  )


# The generator


ADAPTERS = {"to", "squash", "tame", "tame_int"}


class Builder:
  def __init__(self, seed):
    self.seed = seed
    self.rng = random.Random(seed)
    self.torch = torch.Generator().manual_seed(seed)
    self.sources, self.nodes = [], []
    self.values = {}  # tensors by id, one for each assignment
    self.count = 0
    self.symbols = {}
    for name in "abc":
      numbers = self.rng.sample([3, 4, 5, 6, 7, 8, 9, 11], 1)
      while len(numbers) < ASSIGNMENTS:
        size = self.rng.choice([2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 16, 17, 20, 1])
        if size not in numbers:
          numbers.append(size)
      self.symbols[name] = tuple(numbers)

  def new_id(self):
    self.count += 1
    return self.count - 1

  def vectors(self, id):
    """The sizes of each dimension, one for each assignment."""
    values = self.values[id]
    return tuple(tuple(value.shape[dim] for value in values) for dim in range(values[0].ndim))

  def source(self, role, values):
    id = self.new_id()
    self.sources.append(Source(id, role, values))
    self.values[id] = values
    return id

  def begin(self):
    rank = self.rng.choice([1, 2, 2, 3, 3, 4])
    dims = []
    for _ in range(rank):
      if self.rng.random() < 0.55:
        dims.append(self.symbols[self.rng.choice("abc")])
      else:
        dims.append((self.rng.choice([1, 2, 3, 4, 5, 8]),) * ASSIGNMENTS)
    if not any(len(set(dim)) > 1 for dim in dims):
      dims[0] = self.symbols["a"]
    dtype = self.rng.choices(list(DTYPES), list(DTYPES.values()))[0]
    return self.input(dims, dtype)

  def input(self, dims, dtype):
    values = [self.random_tensor(shape, dtype) for shape in zip(*dims)]
    if len(dims) > 1 and self.rng.random() < 0.15:  # the same shape in other strides
      values = [value.transpose(0, -1).contiguous().transpose(0, -1) for value in values]
    return self.source("input", values)

  def random_tensor(self, shape, dtype, low=-2.0, high=2.0):
    if dtype == torch.bool:
      return torch.rand(shape, generator=self.torch) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
      low = 0 if dtype == torch.uint8 else int(low) - 2
      return torch.randint(low, int(high) + 4, shape, generator=self.torch).to(dtype)
    if dtype.is_complex:
      parts = torch.rand((*shape, 2), generator=self.torch, dtype=torch.float64) * 4 - 2
      return torch.view_as_complex(parts).to(dtype)
    values = torch.rand(shape, generator=self.torch, dtype=torch.float64) * (high - low) + low
    return values.to(dtype)

  # Nodes

  def add(self, name, leaves, tree, branches=None, effect=False, keep=None):
    """Adds a node if eager mode takes it at all sizes. Returns the ids of its results, or none."""
    results = []
    for number in range(ASSIGNMENTS):
      env = {
        leaf.id: self.values[leaf.id][number] for leaf in leaves if isinstance(leaf, (Ref, Size))
      }
      if effect:
        env = {id: clone(value) for id, value in env.items()}
      try:
        with torch.no_grad():
          arguments = [
            env[leaf.id]
            if isinstance(leaf, Ref)
            else env[leaf.id].shape[leaf.dim]
            if isinstance(leaf, Size)
            else leaf
            for leaf in leaves
          ]
          if branches:
            outputs = branch(Node(name, leaves, tree, [], branches), arguments, False, None, False)
          else:
            outputs = call(name, tree, arguments)
      except Exception:
        return None
      tensors = pytree.tree_leaves(outputs)
      if not tensors or not all(isinstance(one, torch.Tensor) for one in tensors):
        return None
      if any(
        one.layout != torch.strided
        or not 0 < one.numel() <= 6000
        or one.ndim > 6
        or one.dtype not in (*DTYPES, torch.complex128)
        for one in tensors
      ):
        return None
      results.append(tensors)
    if len({len(tensors) for tensors in results}) > 1 or len(results[0]) > 12:
      return None
    shapes = [[(one.ndim, one.dtype) for one in tensors] for tensors in results]
    if any(one != shapes[0] for one in shapes):
      return None
    ids = [self.new_id() for _ in results[0]]
    for place, id in enumerate(ids):
      self.values[id] = [tensors[place] for tensors in results]
    self.nodes.append(Node(name, leaves, tree, ids, branches, effect))
    return ids if keep is None else ids[:keep]

  def own(self, name, *args, effect=False):
    leaves, tree = pytree.tree_flatten(args)
    return self.add(name, leaves, tree, effect=effect)

  def tame(self, id):
    """A value whose numbers are neither large nor NaN, from one that may be."""
    values = self.values[id]
    dtype = values[0].dtype
    if dtype.is_floating_point:
      if all(bool(v.isfinite().all()) and float(v.abs().max()) <= LARGEST for v in values):
        return id
      ids = self.own("tame", Ref(id))
    elif dtype.is_complex:
      if all(
        bool(torch.view_as_real(v.resolve_conj()).isfinite().all())
        and float(v.abs().max()) <= LARGEST
        for v in values
      ):
        return id
      return None
    elif dtype == torch.bool or all(int(v.abs().max()) <= 50 for v in values):
      return id
    else:
      ids = self.own("tame_int", Ref(id))
    return ids and ids[0]

  def converted(self, id, dtypes):
    """A value converted to one of these dtypes."""
    now = self.values[id][0].dtype
    if now in dtypes:
      return id
    wanted = [dtype for dtype in DTYPES if dtype in dtypes]
    if now.is_complex:
      ids = self.own("real", Ref(id))
      return self.converted(ids[0], dtypes) if ids else None
    if not wanted:
      return None
    dtype = self.rng.choices(wanted, [DTYPES[one] for one in wanted])[0]
    if dtype == torch.uint8 and any(bool((v < 0).any()) for v in self.values[id]):
      return None
    ids = self.own("to", Ref(id), dtype)
    return ids and ids[0]

  def with_rank(self, id, rank):
    """A value with this many dimensions."""
    while self.values[id][0].ndim > rank:
      n = self.values[id][0].ndim
      kind = self.rng.choice(["flatten_first", "select_last", "amax_dim"])
      if kind == "amax_dim":
        ids = not self.values[id][0].is_complex() and self.own(
          "amax_dim", Ref(id), self.rng.randrange(n)
        )
      elif kind == "flatten_first" and n < 2:
        ids = self.own("select_last", Ref(id))
      else:
        ids = self.own(kind, Ref(id))
      if not ids:
        return None
      id = ids[0]
    while self.values[id][0].ndim < rank:
      ids = (
        self.own("unsqueeze_first", Ref(id))
        if self.rng.random() < 0.5
        else self.own("repeat_new", Ref(id), self.rng.choice([2, 3, 4, 5]))
      )
      if not ids:
        return None
      id = ids[0]
    return id

  def step(self, id):
    """A value that an operator of the database makes of `id`, or none."""
    name = self.rng.choice(self.names())
    op = operators()[name]
    if name in DATA and self.rng.random() < 0.6:
      return None
    supported = op.supported_dtypes("cpu")
    before = len(self.nodes), self.count, len(self.sources)
    ids = self.attempt(name, op, id, supported)
    if ids is None:
      self.undo(*before)
    return ids

  def undo(self, nodes, count, sources):
    del self.nodes[nodes:], self.sources[sources:]
    for id in range(count, self.count):
      self.values.pop(id, None)
    self.count = count

  @staticmethod
  @functools.cache
  def names():
    return sorted(operators())

  def attempt(self, name, op, id, supported):
    id = self.converted(id, supported)
    if id is None:
      return None
    dtype = self.values[id][0].dtype
    choices = samples(name, dtype)
    if not choices or (op.name in INEXACT and dtype is torch.float64):
      return None
    rank = self.values[id][0].ndim
    fitting = [
      sample
      for sample in choices
      if any(
        isinstance(leaf, torch.Tensor) and leaf.dtype == dtype and leaf.ndim == rank
        for leaf in sample[0]
      )
    ]
    leaves, tree = self.rng.choice(fitting or choices)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    fitting = [n for n in places if leaves[n].dtype == dtype]
    if not fitting:
      return None
    place = fitting[0] if self.rng.random() < 0.75 else self.rng.choice(fitting)
    sample = leaves[place]
    elementwise = type(op).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo")
    if not elementwise and self.rng.random() < 0.9:
      id = self.with_rank(id, sample.ndim)
      if id is None:
        return None
    low, high = getattr(op, "domain", (None, None))
    if (low is not None or high is not None) and dtype.is_floating_point:
      low = -2.0 if low is None else float(low) + 0.01
      high = max(low, 0.0) + 3.0 if high is None else float(high) - 0.01
      if any(bool(((v < low) | (v > high)).any()) for v in self.values[id]):
        ids = self.own("squash", Ref(id), low, high)
        if not ids:
          return None
        id = ids[0]
    if op.name in ZEROS and any(bool((v == 0).any()) for v in self.values[id]):
      return None
    for alignment in ("right", "left", "values"):
      before = len(self.nodes), self.count, len(self.sources)
      arguments = self.arguments(op, leaves, place, id, alignment)
      if arguments is not None and "stable" not in str(tree) and op.name == "argsort":
        return None
      ids = arguments and self.add(name, arguments, tree)
      if ids:
        if op.name in TIES:
          ids = ids[:1]
        tamed = [self.tame(one) for one in ids]
        if any(one is None for one in tamed):
          return None
        small = max(value.numel() for one in tamed for value in self.values[one]) <= 2
        if small and self.rng.random() < 0.7:
          return None
        return tamed
      self.undo(*before)
    return None

  def arguments(self, op, leaves, place, id, alignment):
    """The leaves of a call: those of a sample, with `id` at `place`, and what depends on its
    sizes."""
    sample, vectors = leaves[place], self.vectors(id)
    by_size = {}
    for dim in range(min(sample.ndim, len(vectors))):
      by_size.setdefault(sample.shape[dim], vectors[dim])
    arguments = []
    for n, leaf in enumerate(leaves):
      if n == place:
        arguments.append(Ref(id))
      elif isinstance(leaf, torch.Tensor):
        dims = self.dims_of(leaf, sample, vectors, by_size, alignment)
        arguments.append(self.tensor(op, leaf, dims, id))
        if arguments[-1] is None:
          return None
      elif (
        type(leaf) is int
        and leaf > 1
        and leaf in by_size
        and leaf in sample.shape
        and self.rng.random() < 0.4
      ):
        dim = list(sample.shape).index(leaf)
        arguments.append(Size(id, dim) if dim < len(vectors) else leaf)
      else:
        arguments.append(leaf)
    return arguments

  def dims_of(self, leaf, sample, vectors, by_size, alignment):
    dims = []
    for dim, size in enumerate(leaf.shape):
      at = dim if alignment == "left" else dim - leaf.ndim + sample.ndim
      to = dim if alignment == "left" else dim - leaf.ndim + len(vectors)
      constant = (size,) * ASSIGNMENTS
      if (
        alignment != "values"
        and 0 <= at < sample.ndim
        and 0 <= to < len(vectors)
        and (size == sample.shape[at])
      ):
        dims.append(vectors[to])
      elif size == 1:
        dims.append(constant)
      else:
        dims.append(by_size.get(size, constant))
    if alignment != "left" and len(vectors) > sample.ndim and leaf.ndim == sample.ndim:
      dims = [*vectors[: len(vectors) - sample.ndim], *dims]
    return dims

  def tensor(self, op, leaf, dims, near):
    """An argument with these sizes: an earlier value, the sample's, or a new source."""
    dtype, rng = leaf.dtype, self.rng
    number = dtype.is_floating_point or dtype.is_complex
    if number and rng.random() < 0.4:
      fitting = [
        one
        for one in self.values
        if self.values[one][0].dtype == dtype and self.vectors(one) == tuple(dims)
      ]
      if fitting:
        return Ref(rng.choice(fitting))
    static = all(len(set(dim)) == 1 for dim in dims)
    if static and tuple(dim[0] for dim in dims) == tuple(leaf.shape):
      values = [leaf.clone()] * ASSIGNMENTS
    elif op.name in PLACES and not number and dtype != torch.bool:
      return None
    elif dtype == torch.bool or dtype.is_complex:
      values = [self.random_tensor(shape, dtype) for shape in zip(*dims)]
    elif number:
      finite = leaf[leaf.isfinite()].double()
      low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (-1.0, 1.0)
      low, high = max(low, -3.0), min(high, 3.0)
      if not low < high:
        high = low + 1
      values = [self.random_tensor(shape, dtype, low, high) for shape in zip(*dims)]
    else:
      flat = leaf.flatten()
      values = [
        flat[torch.randint(0, flat.numel(), shape, generator=self.torch)] for shape in zip(*dims)
      ]
    if static:
      values = values[:1] * ASSIGNMENTS
      role = rng.choice(["input", "parameter", "buffer"] if number else ["input", "buffer"])
    else:
      role = "input"
    return Ref(self.source(role, values))

  def change(self, id):
    """A value that something else than an operator of the database makes of `id`."""
    value, rng = self.values[id][0], self.rng
    number = value.dtype.is_floating_point
    kinds = []
    if value.ndim:
      dim = rng.randrange(value.ndim)
      kinds += [("narrow_half", dim), ("skip_two", dim), ("cat_self", dim), ("transposed",)]
      if value.dtype != torch.bool:
        kinds += [("slice_write", 2), ("select_write", 1), ("alias_chain",)]
      if value.ndim > 1:
        kinds.append(("reshape_rows",))
      if number:
        kinds.append(("mask_write", 0.5))
    if not kinds:
      return None
    name, *args = rng.choice(kinds)
    ids = self.own(name, Ref(id), *args)
    if not ids:
      return None
    tamed = [self.tame(one) for one in ids]
    return None if any(one is None for one in tamed) else tamed

  def state(self, id):
    """A value that passes through a buffer that is written."""
    if not self.values[id][0].dtype.is_floating_point:
      return None
    vectors = self.vectors(id)
    for dim in reversed(range(len(vectors))):
      if len(set(vectors[dim])) > 1:
        ids = self.own("mean_dim", Ref(id), dim)
        if not ids:
          return None
        id = ids[0]
    value = self.values[id][0]
    name = self.rng.choice(["buffer_add", "buffer_mean", "buffer_shift"])
    shape = (3, *value.shape) if name == "buffer_shift" else value.shape
    buffer = self.random_tensor(tuple(shape), value.dtype)
    source = self.source("buffer", [buffer] * ASSIGNMENTS)
    return self.own(name, Ref(source), Ref(id), effect=True)

  def condition(self, id):
    """A torch.cond between two chains of operators on `id`."""
    value = self.values[id][0]
    if not value.dtype.is_floating_point or not value.ndim:
      return None
    mean = self.own("mean_all", Ref(id))
    if not mean:
      return None
    means = sorted(float(one) for one in self.values[mean[0]])
    threshold = (means[1] + means[2]) / 2
    leaves, tree = pytree.tree_flatten(((Ref(mean[0]),), (threshold,), {}))
    leaves, tree = pytree.tree_flatten((Ref(mean[0]), (threshold,), {}))
    predicate = self.add("gt", leaves, tree)
    if not predicate:
      return None
    branches = []
    for _ in range(2):
      before = len(self.nodes)
      result = id
      for _ in range(self.rng.choice([1, 2])):
        for _ in range(20):
          names = self.chain_names()
          name = self.rng.choice(names)
          op, dtype = operators()[name], self.values[result][0].dtype
          if dtype not in op.supported_dtypes("cpu"):
            continue
          if op.name in INEXACT and dtype is torch.float64:
            continue
          leaves, tree = pytree.tree_flatten((Ref(result), (), {}))
          ids = self.add(name, leaves, tree)
          tamed = ids and len(ids) == 1 and self.tame(ids[0])
          if tamed and self.values[tamed][0].dtype == value.dtype:
            result = tamed
            break
      nodes = self.nodes[before:]
      del self.nodes[before:]
      if result == id:
        return None
      branches.append((nodes, result))
    leaves = [Ref(predicate[0]), Ref(id)]
    return self.add("cond", leaves, None, branches=branches)

  @staticmethod
  @functools.cache
  def chain_names():
    return [
      name
      for name, op in sorted(operators().items())
      if type(op).__name__ == "UnaryUfuncInfo" and op.name not in ZEROS
    ]

  def finish(self):
    used = {ref for node in self.nodes for ref in node.refs()}
    results = [result for node in self.nodes for result in node.results if result not in used]
    dropped = {
      result
      for node in self.nodes
      if node.name in operators() and operators()[node.name].name in TIES
      for result in node.results[1:]
    }
    results = [result for result in results if result not in dropped]
    if not results:
      return None
    outputs = results[-4:]
    others = [r for node in self.nodes for r in node.results if r in used and r not in dropped]
    if others and self.rng.random() < 0.3:
      outputs.append(self.rng.choice(others))
    sizes = [
      " ".join(f"{name}={numbers[n]}" for name, numbers in self.symbols.items())
      for n in range(ASSIGNMENTS)
    ]
    return Program(self.seed, sizes, self.sources, self.nodes, outputs).without_dead()


def program_of(seed):
  """The program of a seed."""
  for attempt in itertools.count():
    builder = Builder(seed * 1000 + attempt)
    program = _built(builder)
    if program and any(
      len({value.shape for value in source.values}) > 1
      for source in program.sources
      if source.role == "input"
    ):
      program.seed = seed
      return program


def _built(builder):
  rng = builder.rng
  now = builder.begin()
  wanted, done = rng.randint(2, 12), 0
  recent = [now]
  for _ in range(wanted * 12):
    if done == wanted:
      break
    id = rng.choice(recent[-3:]) if rng.random() < 0.3 else recent[-1]
    before = len(builder.nodes), builder.count, len(builder.sources)
    kind = rng.random()
    if kind < 0.82:
      ids = builder.step(id)
    elif kind < 0.92:
      ids = builder.change(id)
    elif kind < 0.97:
      ids = builder.state(id)
    else:
      ids = builder.condition(id)
    if ids is None:
      builder.undo(*before)
      continue
    done += 1
    recent += ids[:2][::-1]
  return builder.finish() if done >= 2 else None
