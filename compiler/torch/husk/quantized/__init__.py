"""Weights of 8 and 4 bits: products whose second operand is made from codes and scales become one
operator, `husk::linear_quantized`, whatever operators a model spells them with."""

from .operator import as_arithmetic
from .rewriting import Recognised

__all__ = ["Recognised", "as_arithmetic"]
