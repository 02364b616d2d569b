"""The activations of the operators of the host. Written by schema/activations.py from
activations.def.

Each row has an operator of the namespace aten, the values of its arguments besides the tensor, and
the name in files of the activation that the operator is then.
"""

CALLS: tuple[tuple[str, dict[str, int | str], str], ...] = (
  ("relu", {}, "relu"),
  ("relu6", {}, "relu6"),
  ("hardtanh", {"min_val": 0, "max_val": 6}, "relu6"),
  ("hardsigmoid", {}, "hardsigmoid"),
  ("hardswish", {}, "hardswish"),
  ("sigmoid", {}, "sigmoid"),
  ("silu", {}, "silu"),
  ("tanh", {}, "tanh"),
  ("gelu", {"approximate": "none"}, "gelu"),
  ("gelu", {"approximate": "tanh"}, "gelu_tanh"),
)
