"""Triton kernels of a CUDA target: from the source that Inductor wrote to a cubin, and to the rows and launches of the
`.hir` that name it.

A kernel's parameters are those of its signature in order, without what was specialised away (`constexpr`, ints that
equal 1, None), where failed asserts go (asserts.py), then two scratch pointers (`global_scratch`, `profile_scratch`): memory of
the arena for each block, null where the kernel wants none.
"""

import ast
import dataclasses
import hashlib
import linecache
import re
import types

import sympy
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Min, Where
from torch.utils._sympy.value_ranges import bound_sympy

from . import asserts, descriptors, sources, tuning, versions, waits
from .accesses import accesses
from .errors import Unsupported
from .launch import Launch

_TYPES = {"i1": "bool", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u1": "bool", "u8": "u8", "u16": "u16",
          "u32": "u32", "u64": "u64", "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}
_BYTES = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8,
          "u64": 8, "f64": 8, "ptr": 8}

_LARGEST_ALIGNMENT = 256     # of what a port allocates


@dataclasses.dataclass
class Kernel:
  """A compiled kernel. `arguments` are the names that a call gives, in its order; `parameters` the (name, type) that
  the cubin takes of them, without the scratch pointers; `access` says read, write or both of each pointer."""

  name: str
  symbol: str
  cubin: bytes
  ptx: str
  arguments: list
  parameters: list
  access: dict
  block: tuple
  shared: int
  cluster: int
  waits_first: bool
  triggers_early: bool
  cooperative: bool
  scratch: list      # bytes a block and alignment of both scratch pointers
  config: dict
  inductor_meta: dict

  @property
  def types(self):
    return [kind for _, kind in self.parameters] + ["ptr", "ptr"]

  def grid(self, call_args):
    """The grid of a call, three sympy expressions or ints."""
    extra = self.inductor_meta.get("extra_launcher_args", ())
    if len(call_args) != len(self.arguments) + len(extra):
      raise Unsupported(f"kernel {self.name}: called with {len(call_args)} arguments, it takes "
                        f"{len(self.arguments) + len(extra)} ({', '.join([*self.arguments, *extra])})")
    scope = {**self.config, **dict(zip([*self.arguments, *extra], call_args))}
    x, y, z = grid(self.name, self.inductor_meta, self.config, scope)
    return (x * self.cluster, y, z)


@dataclasses.dataclass
class _Definition:
  source: str
  kernel: Kernel
  plain: str                  # the source without what its asserts became, to be measured
  config: object = None       # the one that was measured to be the best
  largest_grid: int = 0       # blocks, over all calls; None: not known
  calls: int = 0


class CudaKernels:
  """The kernels of one CUDA target, for all functions of a program. `prefix` begins the names of its rows; `trigger`
  is the policy of `waits.triggers_early`, `tuned` says how configurations are chosen, `way` what becomes of asserts; `texts`,
  which others may add to as well, gets what they say. `note` is told what a reader should know. To be used under
  `offline.cuda(target)`."""

  # What the machine code assumes of the address of a buffer: Inductor marks its own as divisible by it.
  alignment = 16

  def __init__(self, target, prefix="", trigger="never", wait=True, tuned=None, way="status", texts=None, note=None):
    self.target, self.prefix, self.trigger = target, prefix, trigger
    self.tuning = tuned or tuning.Tuning("heuristic")
    self.way, self.texts = asserts.check_way(way), [] if texts is None else texts
    self.note = note or (lambda text: None)
    self.wait = wait and waits.supported(target.capability)
    waits.triggers_early(trigger, None, 0)
    self._definitions = {}    # row name -> _Definition
    self._by_source = {}      # hash of what a kernel is but for its name -> row name
    self._names = {}          # name in the function at hand -> row name

  def options(self):
    """Inductor's options for this target; those of `offline.cuda` hold already."""
    return {}

  def begin_function(self):
    """Names of kernels are Inductor's, and begin anew in every function."""
    self._names = {}

  def define_kernel(self, name, body, metadata=None):
    """Compiles a KernelDefinitionLine."""
    symbol, source = source_of(name, body)
    source = descriptors.rewritten(sources.with_whole_ranks(source), symbol)
    key = hashlib.sha256(re.sub(rf"\b{re.escape(symbol)}\b", "kernel", source).encode()).hexdigest()
    if key not in self._by_source:
      row, n = name, 1
      while row in self._definitions:
        n += 1
        row = f"{name}_{n}"
      self._definitions[row] = self._defined(symbol, row, source)
      self._by_source[key] = row
    self._names[name] = self._by_source[key]

  def _defined(self, name, row, source):
    """Compiles a kernel, with its asserts as they are to be."""
    from triton.compiler.errors import CompilationError
    if self.way == "off":
      source = asserts.removed(source)
    tuner = _loaded(name, source, self.wait, trigger=False)
    self.tuning.defined(row, tuner)
    if self.way == "status" and "tl.device_assert(" in source:
      made = asserts.rewritten(source, name, len(self.texts) + 1)
      try:
        kernel = self._compiled(name, _loaded(name, made.source, self.wait, trigger=False))
      except CompilationError as error:
        self.note(f"kernel {self.prefix}{row}: its asserts are traps, since without them it does not compile: "
                  f"{str(error).strip().splitlines()[-1]}")
      else:
        self.texts += [f"kernel {self.prefix}{row}: {text}" for text in made.texts]
        if made.left:
          self.note(f"kernel {self.prefix}{row}: {made.left} of its asserts are traps: what they protect is not known")
        return _Definition(made.source, kernel, plain=source)
    return _Definition(source, self._compiled(name, tuner), plain=source)

  def _compiled(self, name, tuner):
    return compiled(name, tuner, self.target, self.wait, self.tuning.ordered(self.target, tuner))

  def kernel(self, name):
    """The Kernel that a name stands for in the function at hand."""
    return self._definitions[self._names[name]].kernel

  def call_kernel(self, name, call_args, ranges=None, extent=None):
    """The launch of a KernelCallLine. `call_args` are its `call_args`, sympy expressions for ints; `ranges` (symbol to
    ValueRanges) bound the grid; `extent` gives the bytes of what stands for a buffer, where kernels are measured."""
    if name not in self._names:
      raise Unsupported(f"kernel {name}: called but not defined as a Triton kernel")
    row = self._names[name]
    # A SymbolicCallArg is a size that Inductor named for its own launcher.
    call_args = [getattr(given, "inner_expr", given) for given in call_args]
    definition = self._definitions[row]
    if self.tuning.measures and definition.calls == 0:
      self._measure(name, definition, call_args, extent)
    kernel = definition.kernel
    blocks = kernel.grid(call_args)
    given = self._values(kernel, call_args)
    arguments = [("asserts",) if parameter == asserts.PARAMETER else
                 ("view", kernel.access[parameter], given[parameter]) if kind == "ptr" else ("value", given[parameter])
                 for parameter, kind in kernel.parameters]
    largest = _largest(blocks, ranges or {})
    before = definition.largest_grid
    definition.largest_grid = None if largest is None or before is None else max(before, largest)
    definition.calls += 1
    count = sympy.Mul(*blocks)
    scratch = [("scratch", count * size, align) if size else ("null",) for size, align in kernel.scratch]
    return Launch(self.prefix + row, blocks, arguments + scratch)

  @staticmethod
  def _values(kernel, call_args):
    """What a call gives, by parameter."""
    values = {}
    for argument, value in zip(kernel.arguments, call_args):
      values.update(value.arguments(argument) if isinstance(value, descriptors.Descriptor) else {argument: value})
    return values

  def _measure(self, name, definition, call_args, extent):
    """Compiles a kernel anew, in the configuration that is fastest on calls like this one."""
    kernel = definition.kernel
    kernel.grid(call_args)     # refuses a wrong number of arguments
    tuner = _loaded(name, definition.plain, self.wait, trigger=False)
    values = self._values(kernel, call_args)
    given = [(parameter, values[parameter]) for parameter in tuner.fn.arg_names if parameter in values]
    given += zip(kernel.inductor_meta.get("extra_launcher_args", ()), call_args[len(kernel.arguments):])
    definition.config = self.tuning.measured(name, self.target, tuner, given, versions.size_hint, extent)
    if definition.source != definition.plain:
      tuner = _loaded(name, definition.source, self.wait, trigger=False)
    definition.kernel = compiled(name, tuner, self.target, self.wait, [definition.config])

  def finish(self):
    """Decides who triggers early, now that all calls are known, and compiles those anew."""
    for definition in self._definitions.values():
      if self.wait and definition.calls and definition.kernel.waits_first and not definition.kernel.triggers_early and (
          waits.triggers_early(self.trigger, definition.largest_grid, self.target.multi_processor_count) and
          waits.may_trigger(definition.kernel.ptx)):
        name = definition.kernel.name
        tuner = _loaded(name, definition.source, True, trigger=True)
        configs = [definition.config] if definition.config else self.tuning.ordered(self.target, tuner)
        definition.kernel = compiled(name, tuner, self.target, True, configs)

  def kernels(self):
    """(row name, Kernel) of all, in the order of their definition."""
    return [(self.prefix + row, definition.kernel) for row, definition in self._definitions.items()]

  def files(self):
    """File name -> cubin, of all kernels."""
    return {f"{name}.cubin": kernel.cubin for name, kernel in self.kernels()}

  def rows(self, target, folder=""):
    """The `image` and `kernel` rows, lines of a `.hir`; `target` is the name of its target row, `folder` where the
    files will lie as seen from it ("kernels/")."""
    lines = [f'image {name}.cubin {target} cubin "{folder}{name}.cubin"' for name, _ in self.kernels()]
    return lines + [row(name, f"{name}.cubin", kernel) for name, kernel in self.kernels()]


def row(name, image, kernel):
  """The `kernel` row of a `.hir`."""
  x, y, z = kernel.block
  text = f'kernel {name} {image} "{kernel.symbol}" ({", ".join(kernel.types)}) block {x} {y} {z}'
  if kernel.shared:
    text += f" shared {kernel.shared}"
  if kernel.cluster != 1:
    text += f" cluster {kernel.cluster}"
  for flag in ("waits_first", "cooperative", "triggers_early"):
    if getattr(kernel, flag):
      text += f" {flag}"
  return text


# Source


def source_of(name, body):
  """(Function, module) that a definition line quotes: `async_compile.triton('name', '''source''', device_str='cuda')`. A user's
  own kernel has the name that the user gave it there."""
  try:
    call = ast.parse(body.strip()).body[0].value
    maker = ast.unparse(call.func)
    symbol, source = (ast.literal_eval(argument) for argument in call.args[:2])
  except (SyntaxError, AttributeError, IndexError, ValueError) as error:
    raise Unsupported(f"kernel {name}: its definition is not understood ({error}): {body.strip()[:80]!r}") from error
  if maker != "async_compile.triton":
    raise Unsupported(f"kernel {name}: made by {maker}, only Triton kernels can go to a CUDA target")
  return symbol, source


def _load(name, source):
  """Runs the module of a kernel. It never lies in a file, so that no path of this machine reaches the image; Triton
  finds the text by the name of the module."""
  file = f"{name}.py"
  linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
  module = types.ModuleType(name)
  module.__file__ = file
  exec(compile(source, file, "exec"), vars(module))
  return getattr(module, name)


# Compiling


def _loaded(name, source, wait, trigger):
  """Inductor's tuner of the kernel `name` of a module."""
  tuner = _load(name, waits.rewritten(source, name, trigger) if wait else source)
  for attribute in ("configs", "fn", "inductor_meta", "triton_meta", "size_hints", "_precompile_config"):
    if not hasattr(tuner, attribute):
      raise Unsupported(f"kernel {name}: a {type(tuner).__name__} without {attribute}")
  return tuner


def compiled(name, tuner, target, wait, configs):
  """Compiles a kernel in the first configuration that the target has room for."""
  from triton.runtime.errors import OutOfResources, PTXASError
  refused = []
  for config in configs:
    try:
      result = tuner._precompile_config(config)
    except (OutOfResources, PTXASError) as error:
      refused.append(f"{config}: {str(error).strip().splitlines()[-1]}")
      continue
    shared = result.kernel.metadata.shared
    if shared <= target.shared_memory_per_block_optin:
      return _kernel(name, tuner, result, target, wait)
    refused.append(f"{config} wants {shared} bytes of shared memory")
  raise Unsupported(f"kernel {name}: no configuration fits {target.name}, which has "
                    f"{target.shared_memory_per_block_optin} bytes of shared memory: "
                    f"{'; '.join(refused) or 'none given'}")


def _kernel(name, tuner, result, target, wait):
  metadata, forms = result.kernel.metadata, result.kernel.asm
  ptx = forms["ptx"]
  _refuse(name, metadata)
  signature, constants = result.compile_meta["signature"], result.compile_meta["constants"]
  arguments, parameters = [], []
  for index, argument in enumerate(tuner.fn.arg_names):
    if not (index in tuner.fn.constexprs and argument in constants) and not argument.startswith("husk_"):
      arguments.append(argument)
    if argument in constants or signature.get(argument) == "constexpr":
      continue
    parameters.append((argument, _type(name, argument, signature[argument])))
  _check_parameters(name, metadata.name, ptx, [kind for _, kind in parameters] + ["ptr", "ptr"])
  found = waits.check(ptx, metadata.name)
  if wait and not found.first:
    raise Unsupported(f"kernel {name}: the wait was put first, but {found.why_not!r} stands before it in the PTX")
  cluster = getattr(metadata, "num_ctas", 1)
  return Kernel(
      name=name, symbol=metadata.name, cubin=forms["cubin"], ptx=ptx, arguments=arguments,
      parameters=parameters, access=_access(name, forms.get("ttir") or forms["ttgir"], metadata.name, parameters),
      block=(target.warp_size * metadata.num_warps, 1, 1), shared=metadata.shared, cluster=cluster,
      waits_first=found.first, triggers_early=found.triggers,
      cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)), scratch=_scratch(name, metadata),
      config=_config(result.config), inductor_meta=tuner.inductor_meta)


def _refuse(name, metadata):
  """What the cubin needs beyond a plain launch, and a `.hir` cannot say."""
  if getattr(metadata, "tensordesc_meta", None):
    raise Unsupported(f"kernel {name}: takes a host tensor descriptor, which a launch cannot give yet; "
                      "turn triton.enable_host_side_tma off")
  if getattr(metadata, "instrumentation_mode", ""):
    raise Unsupported(f"kernel {name}: compiled with instrumentation {metadata.instrumentation_mode!r}; unset it")
  if getattr(metadata, "tmem_size", 0) and not hasattr(metadata, "num_warps"):
    raise Unsupported(f"kernel {name}: its metadata does not say the number of warps")


def _scratch(name, metadata):
  """Memory that each block wants for itself, as where it writes tensor descriptors: (bytes, alignment), twice."""
  made = []
  for kind in ("global", "profile"):
    size, align = (getattr(metadata, f"{kind}_scratch_{what}", 0) or 0 for what in ("size", "align"))
    if size and align > _LARGEST_ALIGNMENT:
      raise Unsupported(f"kernel {name}: wants scratch at multiples of {align}, {_LARGEST_ALIGNMENT} are the most")
    made.append((size, max(align, 1)))
  return made


def _type(name, argument, text):
  if text.startswith("*"):
    return "ptr"
  if text not in _TYPES:
    raise Unsupported(f"kernel {name}: parameter {argument} has type {text!r}, which a launch cannot give")
  return _TYPES[text]


def _config(config):
  from torch._inductor.runtime.triton_heuristics import config_to_dict
  return config_to_dict(config)


def _check_parameters(name, symbol, ptx, types_):
  """The parameter list is deduced from the signature; the PTX has the last word."""
  head = re.search(r"\.entry\s+" + re.escape(symbol) + r"\s*\((.*?)\)", ptx, re.S)
  found = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[bsuf](\d+)", head.group(1)) if head else []
  sizes = [int(bits) // 8 for bits in found]
  if sizes != [_BYTES[kind] for kind in types_]:
    raise Unsupported(f"kernel {name}: parameters ({', '.join(types_)}) were expected, the PTX has sizes {sizes}")


def _access(name, ttir, symbol, parameters):
  found = accesses(ttir, symbol, [parameter for parameter, kind in parameters if kind == "ptr"])
  if found is None:
    raise Unsupported(f"kernel {name}: its intermediate form does not have the pointers of its signature")
  return found


# Grids


def grid(name, inductor_meta, config, scope):
  """The three grid expressions that Inductor's launcher would compute, with the call's arguments put in."""
  from torch._inductor.runtime import triton_heuristics
  kind = inductor_meta.get("grid_type")
  maker = getattr(triton_heuristics, str(kind), None)
  if not (isinstance(maker, type) and issubclass(maker, triton_heuristics.GridExpr)):
    raise Unsupported(f"kernel {name}: grid type {kind!r} is not known")
  made = maker(inductor_meta=inductor_meta, mode="python")
  made.ceildiv = _ceildiv
  made.generate(config)
  scope = dict(scope)
  for line in made.prefix:
    target, _, value = line.partition(" = ")
    scope[target.strip()] = _value(name, value, scope)
  return tuple(_value(name, side, scope) for side in (made.x_grid, made.y_grid, made.z_grid))


def _ceildiv(numel, block):
  if block is None or block == 1:
    return numel
  if isinstance(numel, int) and isinstance(block, int):
    return -(-numel // block)
  # A divisor that is computed may be 0, where the other side is 0 too.
  return f"cdiv({numel}, {block})" if isinstance(block, int) else f"cdiv({numel}, max(1, {block}))"


def _value(name, text, scope):
  try:
    return _evaluated(ast.parse(str(text).strip(), mode="eval").body, scope)
  except (SyntaxError, KeyError, TypeError, NotImplementedError) as error:
    raise Unsupported(f"kernel {name}: its grid {str(text)!r} is not understood ({error})") from error


def _evaluated(node, scope):
  match node:
    case ast.Constant(value=int() as value):
      return sympy.Integer(value)
    case ast.Name(id=key):
      return sympy.sympify(scope[key])
    case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(op=ast.FloorDiv(), left=left, right=ast.UnaryOp(
        op=ast.USub(), operand=right))):
      return _quotient(CeilDiv, _evaluated(left, scope), _evaluated(right, scope))   # -(a // -b)
    case ast.UnaryOp(op=ast.USub(), operand=operand):
      return -_evaluated(operand, scope)
    case ast.BinOp(left=left, op=op, right=right):
      one, other = _evaluated(left, scope), _evaluated(right, scope)
      match op:
        case ast.Add():
          return one + other
        case ast.Sub():
          return one - other
        case ast.Mult():
          return one * other
        case ast.FloorDiv():
          return _quotient(FloorDiv, one, other)
    case ast.Call(func=ast.Name(id="cdiv"), args=[left, right]):
      return _quotient(CeilDiv, _evaluated(left, scope), _evaluated(right, scope))
    case ast.Call(func=ast.Name(id="max" | "min" as which), args=args):
      return (Max if which == "max" else Min)(*(_evaluated(arg, scope) for arg in args))
    case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=yes, orelse=no):
      relation = {ast.Gt: sympy.Gt, ast.Lt: sympy.Lt, ast.GtE: sympy.Ge, ast.LtE: sympy.Le, ast.Eq: sympy.Eq,
                  ast.NotEq: sympy.Ne}[type(op)]
      condition = relation(_evaluated(left, scope), _evaluated(right, scope))
      return Where(condition, _evaluated(yes, scope), _evaluated(no, scope))
  raise NotImplementedError(f"{ast.unparse(node)!r}")


def _quotient(how, one, other):
  if one.is_Integer and other.is_Integer:
    return sympy.Integer(-(-int(one) // int(other)) if how is CeilDiv else int(one) // int(other))
  return how(one, other)


def _largest(blocks, ranges):
  """An upper bound of the number of blocks, or None."""
  product = 1
  for side in blocks:
    if not isinstance(side, sympy.Expr):
      product *= int(side)
      continue
    try:
      upper = bound_sympy(side, ranges).upper
    except Exception:     # an expression whose range nobody knows
      return None
    if not upper.is_Integer:
      return None
    product *= int(upper)
  return product
