"""The toy device of tests/toy_device in the exporter. Its kernels are those that Inductor generates
for CPUs. It has no operators of its own, so they are steps on the host beside it."""

from husk import checked
from husk.devices.host import Host
from husk.host import operators
from husk.host.kernels import HostKernels
from husk.lower.operators import Operators


class ToyKernels(HostKernels):
  is_beside_host = True


class Toy(Host):
  port = "toy"
  torch_type = ""  # PyTorch has no such device
  generator = ToyKernels

  def __init__(self, isa, row, options):
    super().__init__(isa, row, options)
    self.operators = Operators(
      "toy devices", (), options.ops, operators.names(), options.host_ops == "allow"
    )


class CheckedToy(checked.Host):
  port = "toy"

  def operators(self, called):
    return frozenset(), "the port"
