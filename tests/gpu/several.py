"""Collective operators on several devices, beside torch.distributed: equal results, times, and what
happens to the other ranks if one fails.

python3 tests/gpu/several.py [--device cuda|cpu] [--ranks 2] [--one-machine | --without-nccl]
                             [PART...]
PART: values, groups, times, failures, overlap; all of them by default

Each rank is a process. Values are compared with those of torch.distributed (NCCL, or gloo on the
CPU); sums of floats of two ranks are exact, so all must be equal. An all-reduce with a residual is
compared with one without, to which torch adds the residual. Times are for one all-reduce inside a
CUDA graph of 20, and for one with a residual against an all-reduce and a kernel that adds it.
`groups` are calls of some of the ranks: of pairs, of every other rank, of all in the opposite
order, and of one alone. --one-machine makes the id for ranks that open NCCL when an op needs it.
--without-nccl gives the ranks an id as the port makes it where there is no NCCL; what it refuses
then is counted. It needs huskc and the extension of Python in a build, and torch."""

import argparse
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler/torch"))

import husk
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WITH_RESIDUAL = ("f32", "f16", "bf16")  # the dtypes whose all-reduce takes a residual on GPUs
SIZES = (0, 1, 3, 17, 255, 1024, 4097, 65536, 100_003, 1 << 20, 5_000_001, 1 << 26)
# Bytes whose times are measured.
TIMED = tuple(1 << power for power in (12, 14, 16, 18, 19, 20, 21, 22, 24, 26, 28))
DTYPES = {
  "f32": torch.float32,
  "f64": torch.float64,
  "f16": torch.float16,
  "bf16": torch.bfloat16,
  "i8": torch.int8,
  "u8": torch.uint8,
  "i32": torch.int32,
  "i64": torch.int64,
}
REDUCTIONS = {
  "sum": dist.ReduceOp.SUM,
  "avg": dist.ReduceOp.AVG,
  "product": dist.ReduceOp.PRODUCT,
  "min": dist.ReduceOp.MIN,
  "max": dist.ReduceOp.MAX,
}


def text(device, ranks, rank, functions, own="a", kernels=()):
  """A program for a rank: `functions` are (name, lines of its body with the buffers x and y, the
  rank of y's size relative to x, dtype)."""
  target = 'gpu cuda "sm_90a"' if device == "cuda" else 'gpu host "x86-64"'
  lines = ["hir 1", f'world {ranks} rank {rank} set "{own * 64}"', f"target {target}", *kernels]
  for name, dtype, numerator, denominator, body in functions:
    width = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i32": 4, "i64": 8}[dtype]
    lines += [
      f"function {name} {{",
      f"  input x tensor {dtype} [0..67108864]",
      f"  output y tensor {dtype} rank 1",
      "  variant gpu {",
      "    let n = size(x, 0)",
      f"    let m = floordiv(mul(n, {numerator}), {denominator})",
      f"    buffer x of input bytes mul(n, {width}) align {width}",
      f"    buffer y of output bytes mul(m, {width}) align {width}",
      "    buffer order bytes 1",
      *(f"    {line}" for line in body),
      f"    return (tensor y {dtype} [m] [1])",
      "  }",
      "}",
    ]
  return "\n".join(lines) + "\n"


def collectives(dtype, ranks):
  """The functions of a file for a dtype."""
  everyone = ", ".join(map(str, range(ranks)))
  x, y = f"read tensor x {dtype} [n] [1]", f"write tensor y {dtype} [m] [1]"
  order = "write tensor order u8 [1] [1]"
  found = []
  for how in REDUCTIONS:
    if how == "avg" and dtype[0] in "iu":
      continue
    found.append(
      (
        *(f"all_reduce_{how}", dtype, 1, 1),
        [f'extern "husk::all_reduce" ({x}, "{how}", [{everyone}], {y}, {order})'],
      )
    )
  if dtype in WITH_RESIDUAL:
    # The residual lies one element behind the beginning of its buffer.
    width = 4 if dtype == "f32" else 2
    residual = f"read tensor r {dtype} [n] [1]"
    shifted = f"read tensor s {dtype} [n] [1] offset 1"
    prepared = [
      f"buffer r bytes mul(n, {width}) align 256",
      f"buffer s bytes mul(add(n, 1), {width}) align 256",
      "copy (write r, read x)",
      f"copy (write s[{width}, mul(n, {width})], read x)",
    ]
    for how, operand in (("sum", residual), ("avg", residual), ("sum", shifted)):
      name = f"residual_{how}" + ("_shifted" if operand is shifted else "")
      found.append(
        (
          *(name, dtype, 1, 1),
          [
            *prepared,
            f'extern "husk::all_reduce" ({x}, "{how}", [{everyone}], {y}, {order}, {operand})',
          ],
        )
      )
  found.append(
    (
      *("all_gather", dtype, ranks, 1),
      [f'extern "husk::all_gather_into_tensor" ({x}, [{everyone}], {y}, {order})'],
    )
  )
  found.append(
    (
      *("reduce_scatter", dtype, 1, ranks),
      [f'extern "husk::reduce_scatter_tensor" ({x}, "sum", [{everyone}], {y}, {order})'],
    )
  )
  found.append(
    (
      *("all_to_all", dtype, 1, 1),
      [f'extern "husk::all_to_all_single" ({x}, [], [], [{everyone}], {y}, {order})'],
    )
  )
  found.append(
    (
      *("broadcast", dtype, 1, 1),
      [f'extern "husk::broadcast" ({x}, {ranks - 1}, [{everyone}], {y}, {order})'],
    )
  )
  return found


# to[i] += residual[i], words of f32 or pairs of bf16.
ADDITION = """.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 to, .param .u64 residual, .param .u32 n)
{
  .reg .pred p;
  .reg .u32 i, j, k;
  .reg .b32 a, b;
  .reg .u64 at, x, y;
  .reg .f32 s, t, u, v;
  griddepcontrol.launch_dependents;
  griddepcontrol.wait;
  mov.u32 i, %ctaid.x;
  mov.u32 j, %ntid.x;
  mov.u32 k, %tid.x;
  mad.lo.u32 i, i, j, k;
  ld.param.u32 k, [n];
  setp.ge.u32 p, i, k;
  @p bra DONE;
  ld.param.u64 x, [to];
  ld.param.u64 y, [residual];
  mul.wide.u32 at, i, 4;
  add.u64 x, x, at;
  add.u64 y, y, at;
  ld.global.b32 a, [x];
  ld.global.b32 b, [y];
  SUM
  st.global.b32 [x], a;
DONE:
  ret;
}
"""
SUMS = {
  "f32": "mov.b32 s, a; mov.b32 t, b; add.rn.f32 s, s, t; mov.b32 a, s;",
  "bf16": "shl.b32 j, a, 16; shl.b32 k, b, 16; mov.b32 s, j; mov.b32 t, k; add.rn.f32 s, s, t; "
  "and.b32 a, a, 0xffff0000; and.b32 b, b, 0xffff0000; mov.b32 u, a; mov.b32 v, b; "
  "add.rn.f32 u, u, v; cvt.rn.bf16x2.f32 a, u, s;",
}


def with_residuals(dtype, ranks, count, is_one_call):
  """`count` times an all-reduce and the addition of a residual, which are one call or two."""
  everyone = ", ".join(map(str, range(ranks)))
  width = 4 if dtype == "f32" else 2
  words = f"floordiv(mul(n, {width}), 4)"
  more = f", read tensor r {dtype} [n] [1]" if is_one_call else ""
  body = [f"buffer {name} bytes mul(n, {width}) align 256" for name in ("r", "t", "u")]
  body += ["copy (write r, read x)", "copy (write t, read x)"]
  for number in range(count):
    one, other = ("t", "u") if number % 2 == 0 else ("u", "t")
    body.append(
      f'extern "husk::all_reduce" (read tensor {one} {dtype} [n] [1], "avg", [{everyone}], '
      f"write tensor {other} {dtype} [n] [1], write tensor order u8 [1] [1]{more})"
    )
    if not is_one_call:
      grid = f"(floordiv(add({words}, 127), 128), 1, 1)"
      body.append(f"launch add grid {grid} (both {other}, read r, {words})")
  return [("forward", dtype, 1, 1, [*body, f"copy (write y, read {other})"])]


def groups_of(rank, ranks):
  """Some of the ranks with this one among them. Each of them has the same groups in this order."""
  pair = rank // 2 * 2
  found = [list(range(pair, min(pair + 2, ranks))), list(range(rank % 2, ranks, 2))]
  return [*found, list(reversed(range(ranks))), [rank]]


def calls_of_group(dtype, group):
  """The functions of a file: a sum and a gather of some ranks."""
  x, y = f"read tensor x {dtype} [n] [1]", f"write tensor y {dtype} [m] [1]"
  rest = f"[{', '.join(map(str, group))}], {y}, write tensor order u8 [1] [1])"
  return [
    ("sum", dtype, 1, 1, [f'extern "husk::all_reduce" ({x}, "sum", {rest}']),
    ("gather", dtype, len(group), 1, [f'extern "husk::all_gather_into_tensor" ({x}, {rest}']),
  ]


def chained(dtype, ranks, count):
  """`count` all-reduces in memory of the program."""
  everyone = ", ".join(map(str, range(ranks)))
  width = 4 if dtype == "f32" else 2
  one = (
    f'extern "husk::all_reduce" (both tensor t {dtype} [n] [1], "avg", [{everyone}], '
    f"both tensor t {dtype} [n] [1], write tensor order u8 [1] [1])"
  )
  body = [f"buffer t bytes mul(n, {width}) align 256", "copy (write t, read x)"]
  return [("forward", dtype, 1, 1, [*body, *([one] * count), "copy (write y, read t)"])]


def compile_text(folder, name, content):
  path = pathlib.Path(folder) / f"{name}.hir"
  path.write_text(content)
  subprocess.run(
    [husk.tools.find("huskc") or "huskc", path, "-o", path.with_suffix(".husk")],
    check=True,
    capture_output=True,
  )
  return str(path.with_suffix(".husk"))


def begin(rank, options, port):
  """Joins the reference's process group; returns the device of the rank."""
  os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
  device = "cpu"
  if options.device == "cuda":
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
  dist.init_process_group(
    "nccl" if options.device == "cuda" else "gloo", rank=rank, world_size=options.ranks
  )
  return device


def engine_of(rank, options, device, world=None, seconds=60):
  own = [husk.group_id(options.device, one_machine=options.one_machine) if rank == 0 else None]
  if options.without_nccl:
    own = [b"huskmeet" + os.urandom(16) + bytes(104)]
  dist.broadcast_object_list(own, src=0)
  return husk.Engine(
    device, rank=rank, world=world or options.ranks, group=own[0], group_timeout_ms=1000 * seconds
  )


def numbers(dtype, size, rank, device):
  """Small integers, which every dtype has and whose sums are exact."""
  values = (torch.arange(size, device=device) * 7 + rank * 3) % 5 + 1
  return values.to(dtype)


def reference(name, x, options):
  ranks, rank = options.ranks, dist.get_rank()
  if name.startswith("all_reduce_"):
    y = x.clone()
    if options.device == "cpu" and name.endswith("avg"):
      dist.all_reduce(y)
      return (y / ranks).to(x.dtype)
    dist.all_reduce(y, REDUCTIONS[name.removeprefix("all_reduce_")])
    return y
  if name == "all_gather":
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x)
    return torch.cat(parts)
  if name == "broadcast":
    y = x.clone()
    dist.broadcast(y, ranks - 1)
    return y
  if name == "reduce_scatter":
    y = x.clone()
    dist.all_reduce(y)
    return y.reshape(ranks, -1)[rank]
  parts = [torch.empty_like(x) for _ in range(ranks)]
  dist.all_gather(parts, x)
  return torch.cat([part.reshape(ranks, -1)[rank] for part in parts])


def values(rank, options, port, folder):
  device = begin(rank, options, port)
  engine = engine_of(rank, options, device)
  compared = wrong = refused = 0
  for dtype, torch_dtype in DTYPES.items():
    file = compile_text(
      folder,
      f"{dtype}.rank{rank}",
      text(options.device, options.ranks, rank, collectives(dtype, options.ranks)),
    )
    program = husk.load(file, engine=engine)
    for name, function in program.functions.items():
      for size in SIZES:
        if size * torch_dtype.itemsize > options.bytes:
          continue
        if name in ("reduce_scatter", "all_to_all"):
          size = size // options.ranks * options.ranks
        x = numbers(torch_dtype, size, rank, device)
        if name.startswith("residual_"):
          x = torch.randn(size, device=device).to(torch_dtype)
          wanted = program.functions[f"all_reduce_{name.split('_')[1]}"](x) + x
        else:
          wanted = reference(name, x, options)
        try:
          results = [function(x).clone() for _ in range(2)]
        except husk.UnsupportedError:
          refused += 1
          continue
        compared += 1
        if not all(torch.equal(result, wanted) for result in results):
          wrong += 1
          print(f"rank {rank}: {name} of {size} {dtype} differs", flush=True)
  if rank == 0:
    print(f"values: {compared} compared, {wrong} differ, {refused} refused", flush=True)
  del program, engine, function
  dist.barrier()
  dist.destroy_process_group()
  sys.exit(wrong > 0 or (refused > 0 and not options.without_nccl))


def groups(rank, options, port, folder):
  device = begin(rank, options, port)
  engine = engine_of(rank, options, device)
  compared = wrong = refused = 0
  for dtype in ("f32", "bf16", "i64"):
    for index, group in enumerate(groups_of(rank, options.ranks)):
      functions = calls_of_group(dtype, group)
      file = compile_text(
        folder,
        f"{dtype}.{index}.rank{rank}",
        text(options.device, options.ranks, rank, functions, "abcd"[index]),
      )
      program = husk.load(file, engine=engine)
      for size in (1, 17, 4097, 1_000_003):
        parts = [numbers(DTYPES[dtype], size, other, device) for other in group]
        for name, wanted in ("sum", sum(parts[1:], parts[0])), ("gather", torch.cat(parts)):
          try:
            found = program.functions[name](parts[group.index(rank)])
          except husk.UnsupportedError:
            refused += 1
            continue
          compared += 1
          if not torch.equal(found, wanted):
            wrong += 1
            print(f"rank {rank}: {name} of {size} {dtype} over {group} differs", flush=True)
  if rank == 0:
    print(f"groups: {compared} compared, {wrong} differ, {refused} refused", flush=True)
  del program, engine
  dist.barrier()
  dist.destroy_process_group()
  sys.exit(wrong > 0 or (refused > 0 and not options.without_nccl))


def synchronize():
  if torch.cuda.is_initialized():
    torch.cuda.synchronize()


def median(call, count=30):
  found = []
  for _ in range(count):
    dist.barrier()
    synchronize()
    begin = time.perf_counter()
    call()
    synchronize()
    found.append(time.perf_counter() - begin)
  return sorted(found)[count // 2]


def times_with_residuals(rank, options, engine, device, folder, dtype, kind):
  count, sessions = 20, []
  pathlib.Path(folder, f"{dtype}.rank{rank}.ptx").write_text(ADDITION.replace("SUM", SUMS[dtype]))
  for is_one_call in (True, False):
    functions = with_residuals(dtype, options.ranks, count, is_one_call)
    kernels = (
      ()
      if is_one_call
      else (
        f'image kernels gpu ptx "{dtype}.rank{rank}.ptx"',
        'kernel add kernels "add" (ptr, ptr, i32) block 128 1 1 pdl_wait_first',
      )
    )
    file = compile_text(
      folder,
      f"residual{is_one_call}_{dtype}.rank{rank}",
      text(options.device, options.ranks, rank, functions, kernels=kernels),
    )
    sessions.append(husk.load(file, engine=engine).session())
  lines = []
  for size in (4096, 8192, 65536, 262144, 1 << 20, 1 << 24):
    x = numbers(kind, size // kind.itemsize, rank, device)
    one, other = (session(x).clone() for session in sessions)
    fused, apart = (median(functools.partial(session, x)) / count for session in sessions)
    lines.append(
      f"times: {dtype} {size} bytes with a residual: one call {fused * 1e6:.2f} us, an addition "
      f"behind it {apart * 1e6:.2f} us, ratio {fused / apart:.3f}"
      + ("" if torch.equal(one, other) else ", DIFFERENT results")
    )
  return lines


def times(rank, options, port, folder):
  if options.device != "cuda":
    return
  device = begin(rank, options, port)
  engine = engine_of(rank, options, device)
  count = 20
  lines = []
  for dtype, kind in (("bf16", torch.bfloat16), ("f32", torch.float32)):
    chain = compile_text(
      folder,
      f"chain_{dtype}.rank{rank}",
      text(options.device, options.ranks, rank, chained(dtype, options.ranks, count)),
    )
    program = husk.load(chain, engine=engine)
    for size in TIMED:
      elements = size // kind.itemsize
      if elements > 67108864:
        continue
      x = numbers(kind, elements, rank, device)
      session = program.session()
      session(x)
      own = median(functools.partial(session, x)) / count
      y = x.clone()
      for _ in range(3):
        dist.all_reduce(y, dist.ReduceOp.AVG)
      torch.cuda.synchronize()
      graph = torch.cuda.CUDAGraph()
      with torch.cuda.graph(graph):
        z = x.clone()
        for _ in range(count):
          dist.all_reduce(z, dist.ReduceOp.AVG)
      theirs = median(graph.replay) / count
      lines.append(
        f"times: {dtype} {size} bytes: husk {own * 1e6:.2f} us, torch's graph "
        f"{theirs * 1e6:.2f} us, ratio {own / theirs:.3f}"
      )
      del graph
    lines += times_with_residuals(rank, options, engine, device, folder, dtype, kind)
  if rank == 0:
    print("\n".join(lines), flush=True)
  del program, session, engine
  dist.barrier()
  dist.destroy_process_group()


# The functions of `overlap`: whether they have an all-reduce, products, and products that wait for
# the all-reduce.
OVERLAPS = {
  "nothing": (False, False, False),
  "reduce": (True, False, False),
  "work": (False, True, False),
  "both": (True, True, False),
  "after": (True, True, True),
}
PIECE = 256  # bytes of the result of an all-reduce that a program returns


def overlapping(device, ranks, rank, dtype, count, width, products):
  """A file with the functions of OVERLAPS: an all-reduce of `count` elements of x, and a chain of
  products of a and w, matrices of `width` rows and columns. Operands are copied to memory of the
  program first, since a graph has no large operands in memory of the caller."""
  everyone = ", ".join(map(str, range(ranks)))
  itemsize = DTYPES[dtype].itemsize
  square = width * width * itemsize
  target = 'gpu cuda "sm_90a"' if device == "cuda" else 'gpu host "x86-64"'
  lines = ["hir 1", f'world {ranks} rank {rank} set "{"a" * 64}"', f"target {target}"]

  def matrix(access, name):
    return f"{access} tensor {name} {dtype} [{width}, {width}] [{width}, 1]"

  def vector(access, name):
    return f"{access} tensor {name} {dtype} [{count}] [1]"

  for name, (reduces, multiplies, waits) in OVERLAPS.items():
    sizes = {"t": count * itemsize, "r": count * itemsize, "v": square, "p0": square, "p1": square}
    steps = ["copy (write t, read x)", "copy (write p0, read a)", "copy (write v, read w)"]
    if reduces:
      steps.append(
        f'extern "husk::all_reduce" ({vector("read", "t")}, "sum", [{everyone}], '
        f"{vector('write', 'r')}, write tensor order u8 [1] [1])"
      )
    if waits:
      steps.append(f"copy (write p0[0, {PIECE}], read r[0, {PIECE}])")
    for number in range(products if multiplies else 0):
      one, other = (matrix("read", f"p{number % 2}"), matrix("write", f"p{1 - number % 2}"))
      steps.append(
        f'extern "husk::matmul" ({one}, {matrix("read", "v")}, none, 1.0, 0.0, false, {other}, '
        "write tensor space u8 [33554432] [1])"
        if device == "cuda"
        else f'extern "aten::mm.out" ({one}, {matrix("read", "v")}, {other})'
      )
    last = f"p{products % 2}" if multiplies else "p0"
    steps.append(f"copy (write y, read {'r' if reduces else 't'}[0, {PIECE}])")
    steps.append(f"copy (write z, read {last})")
    piece = PIECE // itemsize
    lines += [
      f"function {name} {{",
      f"  input x tensor {dtype} [{count}]",
      f"  input a tensor {dtype} [{width}, {width}]",
      f"  input w tensor {dtype} [{width}, {width}]",
      f"  output y tensor {dtype} rank 1",
      f"  output z tensor {dtype} rank 2",
      "  variant gpu {",
      f"    buffer x of input bytes {count * itemsize} align {itemsize}",
      *(f"    buffer {one} of input bytes {square} align {itemsize}" for one in "aw"),
      f"    buffer y of output bytes {PIECE} align {itemsize}",
      f"    buffer z of output bytes {square} align {itemsize}",
      *(f"    buffer {one} bytes {size} align 256" for one, size in sizes.items()),
      "    buffer order bytes 1",
      "    buffer space bytes 33554432 align 256",
      *(f"    {step}" for step in steps),
      f"    return (tensor y {dtype} [{piece}] [1], "
      f"tensor z {dtype} [{width}, {width}] [{width}, 1])",
      "  }",
      "}",
    ]
  return "\n".join(lines) + "\n"


def graph_of_torch(x, a, w, products):
  """The same by torch: a graph whose products run while NCCL's stream reduces."""
  y = x.clone()
  dist.all_reduce(y)
  torch.cuda.synchronize()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    y.copy_(x)
    p, v = a.clone(), w.clone()
    reduced = dist.all_reduce(y, async_op=True)
    for _ in range(products):
      p = p @ v
    reduced.wait()
  return graph


def overlap(rank, options, port, folder):
  device = begin(rank, options, port)
  engine = engine_of(rank, options, device)
  dtype = "bf16" if options.device == "cuda" else "f32"
  kind, width, products = DTYPES[dtype], options.width, options.products
  count = max(options.overlap_bytes // kind.itemsize, PIECE // kind.itemsize)
  file = compile_text(
    folder,
    f"overlap.rank{rank}",
    overlapping(options.device, options.ranks, rank, dtype, count, width, products),
  )
  program = husk.load(file, engine=engine)
  x = numbers(kind, count, rank, device)
  generator = torch.Generator().manual_seed(rank)
  a, w = (torch.randn(width, width, generator=generator) / width**0.5 for _ in range(2))
  a, w = (one.to(device, kind) for one in (a, w))
  product = a
  for _ in range(products):
    product = product @ w
  summed = sum(numbers(kind, count, other, device) for other in range(options.ranks))
  piece = PIECE // kind.itemsize
  good, found = True, {}
  session = program.session()
  for index, (name, (reduces, multiplies, waits)) in enumerate(OVERLAPS.items()):
    function = session.functions[name]
    y, z = function(x, a, w)
    good &= torch.equal(y, (summed if reduces else x)[:piece])
    if not waits:
      torch.testing.assert_close(z, product if multiplies else a, rtol=0.05, atol=0.02)
    found[name] = median(functools.partial(function, x, a, w))
    good &= options.device == "cpu" or session.stats(index)["runs_as_graph"] > 0
  lines = [f"overlap: {name}: {took * 1e6:.1f} us" for name, took in found.items()]
  apart = min(found["reduce"], found["work"]) - found["nothing"]
  hidden = found["reduce"] + found["work"] - found["nothing"] - found["both"]
  lines.append(
    f"overlap: {dtype}, {count * kind.itemsize} bytes, {products} products of {width}: hidden "
    f"{hidden / apart:.2f} of the shorter one, both / after {found['both'] / found['after']:.3f}"
  )
  if options.device == "cuda":
    graph = graph_of_torch(x, a, w, products)
    lines.append(f"overlap: torch's graph of both: {median(graph.replay) * 1e6:.1f} us")
    del graph
  if rank == 0:
    print("\n".join(lines), flush=True)
  del program, session, function, engine
  dist.barrier()
  dist.destroy_process_group()
  sys.exit(not good)


def expect_error(rank, what, call, words=""):
  begin = time.perf_counter()
  try:
    call()
  except husk.Error as error:
    took = time.perf_counter() - begin
    good = words in str(error)
    print(
      f"failures: {what}: rank {rank} got {type(error).__name__} after {took:.2f} s: {error}"
      + ("" if good else f" (without {words!r})"),
      flush=True,
    )
    return good
  print(f"failures: {what}: rank {rank} got NO error", flush=True)
  return False


def failures(rank, options, port, folder):
  """Each case has a group of its own, since a group is of no use after a failure."""
  device = begin(rank, options, port)
  x = numbers(torch.float32, 1 << 16, rank, device)

  def sync():
    if options.device == "cuda":
      torch.cuda.synchronize()

  def file(own="a", rank_of_file=rank):
    name = f"sum_{own}{rank_of_file}.by{rank}"
    return compile_text(
      folder,
      name,
      text(options.device, options.ranks, rank_of_file, chained("f32", options.ranks, 1), own),
    )

  # Husk's wait has a deadline. Waits of torch's for the stream know nothing of the group.
  def wait(session):
    session(x)
    session.wait()

  good = True
  # A late rank: 2 s, with a timeout of 1 s.
  engine = engine_of(rank, options, device, seconds=1)
  session = husk.load(file(), engine=engine).session()
  wait(session)
  dist.barrier()
  if rank == 1:
    time.sleep(2)
    try:
      wait(session)  # which may succeed, if what the others sent has arrived before they gave up
    except husk.Error as error:
      print(f"failures: late rank: rank 1 got {type(error).__name__}: {error}", flush=True)
    good &= expect_error(rank, "after it", functools.partial(wait, session))
  else:
    good &= expect_error(rank, "late rank", functools.partial(wait, session))
    good &= expect_error(rank, "after it", functools.partial(wait, session), "no more use")
  del session, engine
  dist.barrier()
  # Another file.
  engine = engine_of(rank, options, device, seconds=10)
  good &= expect_error(
    *(rank, "another file"),
    functools.partial(husk.load, file("ab"[rank]), engine=engine),
    "different",
  )
  husk.load(file(), engine=engine)
  del engine
  dist.barrier()
  # A wrong world.
  good &= expect_error(
    rank, "wrong world", lambda: engine_of(rank, options, device, options.ranks + rank, 3)
  )
  dist.barrier()
  # An id that is used twice.
  own = [husk.group_id(options.device) if rank == 0 else None]
  dist.broadcast_object_list(own, src=0)
  joins = functools.partial(
    *(husk.Engine, device),
    rank=rank,
    world=options.ranks,
    group=own[0],
    group_timeout_ms=4000,
  )
  engine = joins()
  dist.barrier()
  good &= expect_error(rank, "id used twice", joins)
  del engine
  dist.barrier()
  # A rank that is killed.
  engine = engine_of(rank, options, device, seconds=5)
  session = husk.load(file(), engine=engine).session()
  wait(session)
  dist.barrier()
  sync()
  if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
  time.sleep(0.2)
  good &= expect_error(rank, "killed rank", functools.partial(wait, session))
  del session, engine
  sys.stdout.flush()
  os._exit(0 if good else 1)


PARTS = {
  "values": values,
  "groups": groups,
  "times": times,
  "failures": failures,
  "overlap": overlap,
}


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
  parser.add_argument("--ranks", type=int, default=2)
  parser.add_argument("--one-machine", action="store_true")
  parser.add_argument("--without-nccl", action="store_true")
  parser.add_argument("--bytes", type=int, default=1 << 28, help="the largest tensor")
  parser.add_argument("--overlap-bytes", type=int, default=1 << 26, help="of the all-reduce")
  parser.add_argument("--products", type=int, default=4)
  parser.add_argument("--width", type=int, default=4096, help="of the products")
  parser.add_argument("parts", nargs="*", default=list(PARTS))
  options = parser.parse_args()
  start = mp.get_context("spawn")
  failed = False
  for number, part in enumerate(options.parts or PARTS):
    with tempfile.TemporaryDirectory() as folder:
      port = 29500 + os.getpid() % 500 + number
      ranks = [
        start.Process(target=PARTS[part], args=(rank, options, port, folder))
        for rank in range(options.ranks)
      ]
      for process in ranks:
        process.start()
      for process in ranks:
        process.join()
      codes = [process.exitcode for process in ranks]
      expected = [0] * options.ranks
      if part == "failures":
        expected[1] = -signal.SIGKILL
      print(f"{part}: exit codes {codes}", flush=True)
      failed |= codes != expected
  sys.exit(failed)


if __name__ == "__main__":
  main()
