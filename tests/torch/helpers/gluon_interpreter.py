"""Runs a kernel written in Gluon on the CPU, with the limits of compute capability 9.0. Triton's
own interpreter does not support Gluon. Here the text of the kernel is executed as plain Python on
tensors of torch, with stand-ins for the modules that it imports.

Blocks run one after the other. The partitions of `warp_specialize` are threads, one of which runs
at a time; at each barrier the partition that continues is chosen at random. The rules are stricter
than those of a GPU, on which a mistake may have no effect. Each tile of shared memory records its
writer and its readers, and each partition has a vector clock of the progress of other partitions
that it has observed through barriers. The following cases raise an error:

- A tile is read before a wait for the barrier of its copy, or `fence_async_shared` is missing
  between this wait and a product.
- A tile is overwritten before all of its readers are known to be done, or during a copy to it.
- A product is used before `warpgroup_mma_wait`, or no partition ever waits for a copy or a product.
- A barrier gets more arrivals than it counts, or all partitions wait. The text of a `Deadlock`
  names the partitions and the barriers.
- An address is outside of its storage or not a multiple of 16 bytes, or an element of the result is
  stored twice.

Shared memory is NaN before the first write and during a copy. Layouts, registers, divergent threads
of one partition and overflow of 32-bit numbers are not modelled."""

import builtins
import itertools
import types

import numpy
import ptx
import torch
from gluon_machine import Machine
from gluon_values import KINDS, Block, Either, Pointer, Scalar, plain

# Ints of so many bytes: those of torch, and of NumPy.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
_NUMPY = {1: numpy.int8, 2: numpy.int16}


def stand_ins(machine):
  """The modules that a kernel imports from, by name."""

  def anything(*arguments, **named):
    return None

  def check(condition):
    assert condition

  def products(a, b, acc):
    assert a.data.dtype == b.data.dtype
    kind = torch.int32 if a.data.dtype == torch.int8 else torch.float32
    assert acc.data.dtype == kind
    # Sums of a million products of ints are exact in f64.
    wide = torch.float64 if kind == torch.int32 else kind
    return Block(acc.data + (a.data.to(wide) @ b.data.to(wide)).to(kind))

  def choose(if_, one, other):
    if not isinstance(if_, Block):
      return one if if_ else other
    if isinstance(one, Pointer):
      return Either(if_, one, other)
    return Block(torch.where(if_.data, plain(one), plain(other)))

  def extreme(of_tensors, of_scalars):
    def larger_or_smaller(one, other):
      if not isinstance(one, Block) and not isinstance(other, Block):
        return Scalar(of_scalars(one, other))
      like = (one if isinstance(one, Block) else other).data.dtype
      return Block(
        of_tensors(
          torch.as_tensor(plain(one), dtype=like), torch.as_tensor(plain(other), dtype=like)
        )
      )

    return larger_or_smaller

  def instructions(text, constraints, values, dtype, is_pure, pack):
    """Instructions for `pack` elements at a time, which are next to each other in the last
    dimension."""
    kinds = [kind.of for kind in (dtype if isinstance(dtype, tuple) else (dtype,))]
    tensors = torch.broadcast_tensors(*(value.data for value in values))
    assert is_pure and tensors[0].shape[-1] % pack == 0
    bits = [one.contiguous().view(_BITS[one.itemsize]).numpy() for one in tensors]
    results = ptx.elementwise(
      text, constraints, bits, [_NUMPY[kind.itemsize] for kind in kinds], pack
    )
    blocks = [Block(torch.from_numpy(result).view(kind)) for result, kind in zip(results, kinds)]
    return tuple(blocks) if isinstance(dtype, tuple) else blocks[0]

  gl = types.SimpleNamespace(
    **KINDS,
    constexpr=object,
    static_range=builtins.range,
    allocate_shared_memory=machine.allocate,
    warp_specialize=machine.specialize,
    program_id=lambda axis: Scalar(machine.second if axis else machine.program),
    where=choose,
    num_programs=lambda axis: Scalar(machine.programs),
    cdiv=lambda a, b: Scalar(-(-a // b)),
    maximum=extreme(torch.maximum, max),
    minimum=extreme(torch.minimum, min),
    store=machine.store,
    arange=lambda first, end, layout: Block(torch.arange(first, end, dtype=torch.int32)),
    full=lambda shape, value, kind, layout: Block(torch.full(shape, value, dtype=kind.of)),
    convert_layout=lambda x, layout: Block(x.data),
    exp=lambda x: Block(x.data.exp()),
    exp2=lambda x: Block(x.data.exp2()),
    rsqrt=lambda x: Block(x.data.rsqrt()),
    reshape=lambda x, shape: Block(x.data.reshape(shape)),
    permute=lambda x, order: Block(x.data.permute(order)),
    join=lambda x, y: Block(torch.stack([x.data, y.data], -1)),
    split=lambda x: tuple(map(Block, x.data.unbind(-1))),
    static_assert=check,
    inline_asm_elementwise=instructions,
    load=machine.load,
    log2=lambda x: Block(x.data.log2()),
    max=lambda x, axis: Block(x.data.amax(axis)),
    sum=lambda x, axis: Block(x.data.sum(axis)),
    NVMMASharedLayout=types.SimpleNamespace(get_default_for=anything),
    NVMMADistributedLayout=anything,
    BlockedLayout=anything,
    SliceLayout=anything,
    DotOperandLayout=anything,
    DistributedLinearLayout=anything,
    SwizzledSharedLayout=anything,
  )
  mbarrier = types.SimpleNamespace(
    MBarrierLayout=lambda: "barriers",
    init=lambda barrier, count: barrier.init(count),
    wait=machine.wait,
    arrive=machine.arrive,
  )
  async_copy = types.SimpleNamespace(
    async_copy_global_to_shared=machine.copy, mbarrier_arrive=machine.arrive_when_copied
  )
  hopper = types.SimpleNamespace(
    mbarrier=mbarrier,
    fence_async_shared=machine.fence,
    warpgroup_mma=machine.multiply,
    warpgroup_mma_wait=machine.wait_for_products,
  )
  gluon = types.SimpleNamespace(
    jit=lambda act: act, constexpr_function=lambda act: act, language=gl
  )
  tl = types.SimpleNamespace(language=types.SimpleNamespace())
  return {
    "triton.language": tl,
    "triton.experimental": types.SimpleNamespace(gluon=gluon),
    "triton.experimental.gluon": gluon,
    "triton.experimental.gluon.language.nvidia.ampere": types.SimpleNamespace(
      async_copy=async_copy, mma_v2=products
    ),
    "triton.experimental.gluon.language.nvidia.hopper": hopper,
  }


def load(text, machine):
  """The functions of a kernel's text by name; calls of them run on `machine`. Triton's own modules
  are unchanged."""
  modules = stand_ins(machine)
  names = {
    "range": lambda *ends: map(Scalar, range(*ends)),
    "__builtins__": {**vars(builtins), "__import__": lambda name, *rest: modules[name]},
  }
  exec(compile(text, "kernel", "exec"), names)
  return names


def launch(text, kernel, programs, arguments, order=0):
  """Runs the function `kernel` of `text` as `programs` blocks, which may be numbers of two axes.
  Tensors become pointers, ints become scalars of the program. `order` seeds the choice of the
  partition that continues at a barrier."""
  first, second = programs if isinstance(programs, tuple) else (programs, 1)
  machine = Machine(first, order)
  run = load(text, machine)[kernel]
  converted = [
    Pointer.of(x) if isinstance(x, torch.Tensor) else Scalar(x) if type(x) is int else x
    for x in arguments
  ]
  for machine.second, machine.program in itertools.product(range(second), range(first)):
    machine.bytes, machine.allocated = 0, 0
    run(*converted)
