"""The process groups that operators name, which exist while a model is traced."""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported


def ranks(group: Any) -> list[int]:
  """The ranks of a process group, by its name."""
  import torch.distributed as dist
  from torch.distributed import distributed_c10d

  groups: Any = distributed_c10d
  try:
    return list(dist.get_process_group_ranks(groups._resolve_process_group(group)))
  except Exception as error:
    raise Unsupported(
      f"the process group {group!r} of a collective operator, which does not exist any more",
      remedy="export the model while its process group exists, or by husk.parallel.export",
    ) from error
