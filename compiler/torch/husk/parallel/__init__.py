"""Models on several devices: `export` writes a file for each rank, `shard` divides a language model
of transformers among ranks.

A program for several ranks has an artifact for each of them, all in one file, which has once what
is equal, or in files of their own. They run in processes of their own, or in threads of one
process, and communicate by the operators of `inductor/collectives.py`. One process without a GPU
exports all of them: PyTorch's fake process group stands for the other ranks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import exporter, output
from ..hir import huskc
from ..options import Options, Path, merged
from ..program import weights
from ..program.dtensors import local_shards
from ..progress import Progress
from ..runtime.ranks import file_of_rank
from . import transfers
from .pipeline import pipeline, recv, send
from .transformers import shard

if TYPE_CHECKING:
  import torch
  from torch.distributed.device_mesh import DeviceMesh

__all__ = ["export", "file_of_rank", "pipeline", "recv", "send", "shard"]

# Makes the model of a rank, given the mesh of all ranks.
Build = Callable[["DeviceMesh"], "torch.nn.Module"]


def export(
  build: Build,
  args: Any,
  path: Path,
  *,
  ranks: int | tuple[int, ...] = 2,
  names: tuple[str, ...] | None = None,
  kwargs: dict[str, Any] | None = None,
  dynamic_shapes: Any = None,
  function: str = "forward",
  one_file: bool = True,
  keep: Path | None = None,
  progress: bool | None = None,
  options: Options | None = None,
  **changes: Any,
) -> list[pathlib.Path]:
  """Exports a model for several ranks into one file, and returns the paths of all files.

  build: called once for each rank with a `DeviceMesh` on the CPU, makes the model of that rank.
    `parallelize_module(model, mesh, plan)`, `distribute_tensor` and `husk.parallel.shard` work
    there without communication: every rank divides the same whole weights, so seed random ones.
  ranks: the shape of the mesh. Its product is the number of ranks.
  names: the names of the dimensions of the mesh.
  one_file: False writes a file for each rank, for machines that should get no more than theirs:
    model.rank0.husk, model.rank1.husk and so on for model.husk.
  keep: a folder in which the `.hir`, the images and the weights stay, in a folder for each rank.
  args, kwargs, dynamic_shapes, function, progress, options: as for husk.export. The arguments are
    those of one rank, and equal on all ranks.
  """
  merged_options = merged(options, changes)
  shape = (ranks,) if isinstance(ranks, int) else tuple(ranks)
  world = 1
  for size in shape:
    world *= size
  if merged_options.quantize:
    raise ValueError(
      "husk.parallel.export(quantize=...): a weight of codes cannot be divided among ranks; leave "
      "`quantize` out"
    )
  if world < 2:
    raise ValueError(f"ranks={ranks}: a program for several ranks has at least 2")
  if names is not None and len(names) != len(shape):
    raise ValueError(
      f"names={names!r}: a mesh of ranks={ranks} has {len(shape)} dimensions, give a name for each"
    )
  if one_file and merged_options.weights == "beside":
    raise ValueError(
      "husk.parallel.export(weights='beside'): a file of all ranks has its weights inside: give "
      "one_file=False too"
    )
  path = pathlib.Path(path)
  paths = [path] if one_file else [file_of_rank(path, rank) for rank in range(world)]
  huskc.require()
  if merged_options.pack:
    huskc.require_pack()
  for one in paths:
    output.require(one)
  stages = Progress(progress)
  functions = []
  with contextlib.ExitStack() as stack:
    folder = pathlib.Path(keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-")))
    texts = []
    for rank in range(world):
      with _as_rank(rank, shape, names) as mesh:
        model = build(mesh)
        if model is None:
          raise ValueError(f"build(mesh) has returned None for rank {rank}: return the model")
        one = transfers.Function(model, args, kwargs, dynamic_shapes)
        text, _ = exporter._write(
          {function: one}, folder / f"rank{rank}", stages, merged_options, True
        )
      texts.append(text)
      functions.append(one)
    transfers.check([one.transfers for one in functions])
    own = _hash(texts)
    for rank, text in enumerate(texts):
      _add_world(text, world, rank, own)
    if not one_file:
      for text, one in zip(texts, paths):
        with output.disk_explained(one), output.replaced(one) as compiled:
          _compile(text, compiled, merged_options)
      return paths
    with output.disk_explained(path), output.replaced(path) as joined:
      parts = [text.with_suffix(".husk") for text in texts]
      for text, part in zip(texts, parts):
        _compile(text, part, merged_options)
      huskc.join(parts, joined)
      for part in parts:
        part.unlink()
  return paths


def _compile(text: pathlib.Path, artifact: pathlib.Path, options: Options) -> None:
  """Writes the artifact of a rank."""
  huskc.compile(text, artifact, place=options.weights)
  if options.pack:
    huskc.pack(artifact)


def _hash(texts: list[pathlib.Path]) -> str:
  """What the files of one export have in common, and no others: a hash of the programs and weights
  of all ranks."""
  digest = hashlib.blake2b(digest_size=32)
  for text in texts:
    for file in (text, text.parent / weights.FILE):
      if not file.exists():
        continue
      digest.update(os.path.getsize(file).to_bytes(8, "little"))
      with file.open("rb") as content:
        while part := content.read(1 << 24):
          digest.update(part)
  return digest.hexdigest()


def _add_world(text: pathlib.Path, world: int, rank: int, own: str) -> None:
  """Writes into the `.hir` of a rank that it is one of several."""
  first, rest = text.read_text(encoding="utf-8").split("\n", 1)
  line = f'world {world} rank {rank} set "{own}"'
  text.write_text(f"{first}\n{line}\n{rest}", encoding="utf-8")


@contextlib.contextmanager
def _as_rank(
  rank: int, shape: tuple[int, ...], names: tuple[str, ...] | None
) -> Iterator[DeviceMesh]:
  """While open, this process is a rank of a process group that does not communicate."""
  import torch.distributed as dist
  from torch.distributed.device_mesh import init_device_mesh
  from torch.testing._internal.distributed import fake_pg

  if dist.is_initialized():
    raise RuntimeError(
      "husk.parallel.export makes process groups of its own: call it where torch.distributed is "
      "not initialized"
    )
  world = 1
  for size in shape:
    world *= size
  dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=rank, world_size=world)
  try:
    with local_shards():
      yield init_device_mesh("cpu", shape, mesh_dim_names=names)
  finally:
    dist.destroy_process_group()
