"""torch.compile in two processes that communicate: tensor parallelism, each functional collective,
and operators of symmetric memory, on the CPU."""

import two_ranks


def test_two_processes(tmp_path):
  assert two_ranks.outputs("ranks_program.py", tmp_path) == ["equal\n"] * 2


def test_symmetric_memory(tmp_path):
  assert two_ranks.outputs("symmetric_program.py", tmp_path) == ["equal\n"] * 2
