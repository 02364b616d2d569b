"""torch.compile in two processes that communicate: tensor parallelism, and each functional
collective, on the CPU."""

import two_ranks


def test_two_processes(tmp_path):
  assert two_ranks.outputs("ranks_program.py", tmp_path) == ["equal\n"] * 2
