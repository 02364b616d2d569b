"""Models that are exported for several ranks, and what these compute on the host."""

import husk

TARGETS = ("host:avx2",)


def export(folder, make, args, ranks=2, targets=TARGETS, **options):
  """Exports the model that `make` makes of the mesh of all ranks; returns the text of rank 0."""
  path, kept = folder / "model.husk", folder / "kept"
  husk.parallel.export(make, args, path, ranks=ranks, targets=targets, keep=kept, **options)
  return (kept / "rank0" / "model.hir").read_text()


def results(folder, inputs):
  """What each rank returns for its own inputs, as a list of tensors."""
  ranks = husk.load_ranks(folder / "model.husk", ["cpu"] * len(inputs), threads=1)

  def call(rank):
    found = ranks.programs[rank](*inputs[rank])
    return [one.clone() for one in (found if isinstance(found, (tuple, list)) else [found])]

  return ranks.on_all(call)
