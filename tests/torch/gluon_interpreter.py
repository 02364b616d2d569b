"""Runs a kernel written in Gluon for compute capability 9.0 on the CPU: stand-ins for the names that it imports execute
its text as plain Python on tensors of torch. Triton's own interpreter knows no Gluon.

Blocks run one after the other. The partitions of `warp_specialize` are threads of which one runs at a time; who goes on
is drawn anew at each barrier. The rules are stricter than a GPU's, which may get away with a mistake: each tile of
shared memory knows who wrote and who reads it, and each partition how far it has seen the others through barriers (a
vector clock). So these raise:

- a tile is read before its copy's barrier was waited for, or without `fence_async_shared` between that and a product;
- a tile is overwritten though not all who read it are known to be done, or while a copy to it is under way;
- a product is used before `warpgroup_mma_wait`, or nobody ever waits for a copy or product;
- a barrier is arrived at more often than it counts, or everybody waits (`Deadlock` says who for what);
- memory is accessed outside of its storage or not at multiples of 16 bytes, or a number of the result is stored twice.

Shared memory is NaN where nothing was written yet and while a copy is under way. Not modelled: layouts, registers,
threads of one partition running apart, numbers of 32 bits that overflow.
"""

import builtins
import types

import torch

from gluon_machine import Machine
from gluon_values import KINDS, Block, Pointer, Scalar, plain


def stand_ins(machine):
  """The modules that a kernel imports from, by name."""
  def anything(*arguments, **named):
    return None

  def choose(if_, one, other):
    if not isinstance(if_, Block):
      return one if if_ else other
    return Block(torch.where(if_.data, plain(one), plain(other)))

  def extreme(of_tensors, of_scalars):
    def made(one, other):
      if not isinstance(one, Block) and not isinstance(other, Block):
        return Scalar(of_scalars(one, other))
      like = (one if isinstance(one, Block) else other).data.dtype
      return Block(of_tensors(torch.as_tensor(plain(one), dtype=like), torch.as_tensor(plain(other), dtype=like)))
    return made

  gl = types.SimpleNamespace(
      **KINDS, constexpr=object, static_range=builtins.range, allocate_shared_memory=machine.allocate,
      warp_specialize=machine.specialize, program_id=lambda axis: Scalar(machine.program), where=choose,
      num_programs=lambda axis: Scalar(machine.programs), cdiv=lambda a, b: Scalar(-(-a // b)),
      maximum=extreme(torch.maximum, max), minimum=extreme(torch.minimum, min), store=machine.store,
      arange=lambda first, end, layout: Block(torch.arange(first, end, dtype=torch.int32)),
      full=lambda shape, value, kind, layout: Block(torch.full(shape, value, dtype=kind.of)),
      convert_layout=lambda x, layout: Block(x.data),
      exp2=lambda x: Block(x.data.exp2()), log2=lambda x: Block(x.data.log2()),
      max=lambda x, axis: Block(x.data.amax(axis)), sum=lambda x, axis: Block(x.data.sum(axis)),
      NVMMASharedLayout=types.SimpleNamespace(get_default_for=anything), NVMMADistributedLayout=anything,
      BlockedLayout=anything, SliceLayout=anything, DotOperandLayout=anything)
  mbarrier = types.SimpleNamespace(MBarrierLayout=lambda: "barriers", init=lambda barrier, count: barrier.init(count),
                                   wait=machine.wait, arrive=machine.arrive)
  async_copy = types.SimpleNamespace(async_copy_global_to_shared=machine.copy,
                                     mbarrier_arrive=machine.arrive_when_copied)
  hopper = types.SimpleNamespace(mbarrier=mbarrier, fence_async_shared=machine.fence, warpgroup_mma=machine.multiply,
                                 warpgroup_mma_wait=machine.wait_for_products)
  gluon = types.SimpleNamespace(jit=lambda act: act, constexpr_function=lambda act: act, language=gl)
  tl = types.SimpleNamespace(language=types.SimpleNamespace())
  return {"triton.language": tl, "triton.experimental": types.SimpleNamespace(gluon=gluon),
          "triton.experimental.gluon": gluon,
          "triton.experimental.gluon.language.nvidia.ampere": types.SimpleNamespace(async_copy=async_copy),
          "triton.experimental.gluon.language.nvidia.hopper": hopper}


def load(text, machine):
  """The names of a kernel's text, to be called as what runs on `machine`. Triton itself stays as it is."""
  modules = stand_ins(machine)
  names = {"range": lambda *ends: map(Scalar, range(*ends)),
           "__builtins__": {**vars(builtins), "__import__": lambda name, *rest: modules[name]}}
  exec(compile(text, "kernel", "exec"), names)
  return names


def launch(text, kernel, programs, arguments, order=0):
  """Runs the kernel of that name in `text` as so many blocks. Tensors become pointers, whole numbers a program's.
  `order` seeds who goes on at barriers."""
  machine = Machine(programs, order)
  act = load(text, machine)[kernel]
  made = [Pointer.of(x) if isinstance(x, torch.Tensor) else Scalar(x) if type(x) is int else x for x in arguments]
  for machine.program in range(programs):
    machine.bytes, machine.allocated = 0, 0
    act(*made)
