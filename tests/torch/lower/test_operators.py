"""Operators that a target does not have are refused before kernels are compiled."""

import pathlib
import re

import husk
import pytest
import torch
from husk.cuda.kernels import CudaKernels
from husk.host import operators
from husk.lower.operators import Operators

ROOT = pathlib.Path(__file__).resolve().parents[3]
X = torch.eye(4) + 1


class TwoOperators(torch.nn.Module):
  def forward(self, x):
    values, _ = torch.linalg.qr((x * 2).relu())
    return values, torch.linalg.matrix_exp(x) + 1


class Sorted(torch.nn.Module):
  def forward(self, x):
    return torch.topk(x, 3)


class InABranch(torch.nn.Module):
  def forward(self, chosen, x):
    return torch.cond(chosen, lambda x: torch.linalg.matrix_exp(x) + 1, lambda x: x * 2, (x,))


class InALoop(torch.nn.Module):
  def forward(self, x):
    def body(i, x):
      return i + 1, torch.linalg.matrix_exp(x) * 2

    return torch.while_loop(lambda i, x: i < 3, body, (torch.zeros((), dtype=torch.int64), x))


class DataDependent(torch.nn.Module):
  def forward(self, x):
    return torch.unique(x, dim=0)


def hir_of(model, args, folder, **options):
  husk.write(model, args, folder, **options)
  return (folder / "model.hir").read_text()


def test_the_file_has_the_operators_of_the_library():
  table = (ROOT / "ports/host/ops/library/pack.def").read_text()
  names = re.findall(r'^HUSK_HOST_OP\("([^"]*)"', table, re.MULTILINE)
  path = ROOT / "compiler/torch/husk/host/operators.txt"
  expected = "".join(f"{name}\n" for name in sorted(names))
  assert path.read_text() == expected, f"write the names of pack.def to {path}"
  assert operators.names() == set(names)


def test_all_missing_operators_are_named_before_a_kernel_is_compiled(tmp_path, monkeypatch):
  def define_kernel(self, name, body, metadata=None):
    raise AssertionError(f"{name} is compiled")

  monkeypatch.setattr(CudaKernels, "define_kernel", define_kernel)
  with pytest.raises(husk.Unsupported) as refused:
    husk.write(TwoOperators(), (X,), tmp_path, targets=["cuda:h200"], host_ops="forbid")
  text = str(refused.value)
  assert re.search(
    r"aten::linalg_qr \(near test_operators.py:\d+ values, _ = torch.linalg", text
  ), text
  assert re.search(r"aten::linalg_matrix_exp \(near test_operators.py:\d+", text), text
  assert "on CUDA targets: compute them outside" in text
  assert "ops=['aten::linalg_qr']" in text


@pytest.mark.parametrize(
  "model, args, name",
  [
    (InABranch(), (torch.tensor(True), X), "aten::linalg_matrix_exp"),
    (InALoop(), (X,), "aten::linalg_matrix_exp"),
    (DataDependent(), (X,), "aten::unique_dim"),
  ],
)
def test_an_operator_is_found_in_a_subgraph_and_with_unknown_sizes(tmp_path, model, args, name):
  with pytest.raises(husk.Unsupported, match=re.escape(f"no implementation of {name} (near")):
    husk.write(model, args, tmp_path, targets=["cuda:h200"], host_ops="forbid")


def test_an_application_may_register_them(tmp_path):
  text = hir_of(TwoOperators(), (X,), tmp_path, targets=["cuda:h200"], ops=["aten::*"])
  assert 'extern "aten::linalg_qr"' in text and 'extern "aten::linalg_matrix_exp"' in text
  text = hir_of(DataDependent(), (X,), tmp_path, targets=["cuda:h200"], ops=["aten::unique_dim"])
  assert 'extern "aten::unique_dim:sizes"' in text
  with pytest.raises(husk.Unsupported, match=r"no implementation of aten::linalg_matrix_exp"):
    husk.write(
      TwoOperators(),
      (X,),
      tmp_path,
      targets=["cuda:h200"],
      ops=["aten::linalg_qr"],
      host_ops="forbid",
    )


def test_hosts_have_the_operators_of_the_library(tmp_path):
  class Loss(torch.nn.Module):
    def forward(self, x):
      return torch.ops.aten._pdist_backward(x[0], x, 2.0, x[0])

  with pytest.raises(husk.Unsupported, match=r"aten::_pdist_backward.* on hosts"):
    husk.write(Loss(), (torch.eye(3),), tmp_path, targets=["host"])
  assert 'extern "aten::topk"' in hir_of(Sorted(), (X,), tmp_path, targets=["host:avx2"])


def test_what_is_there():
  there = Operators("hosts", {"aten::mm.out"}, ["aten::sort*"])
  assert there.has("aten::mm.out") and not there.has("my::op")
  assert there.has("aten::sort.stable") and there.has("aten::sort:sizes")
  assert not there.has("aten::mm") and not there.has("aten::mm.out:sizes")
  assert not there.has("husk::unknown") and not there.has("prims::unknown")


def test_what_runs_on_the_host_beside_a_device():
  of_host = {
    "aten::mm",
    "aten::sort",
    "aten::unique_dim",
    "aten::unique_dim:sizes",
    "aten::poisson",
  }
  there = Operators("CUDA targets", {"aten::mm"}, ["aten::sort*"], of_host, host_steps=True)
  runs = {name for name in (*of_host, "aten::histogram", "my::op") if there.runs_on_host(name)}
  assert runs == {"aten::unique_dim", "aten::unique_dim:sizes"}
  there.check("aten::unique_dim")
  with pytest.raises(husk.Unsupported, match="draws random numbers from another generator"):
    there.check("aten::poisson")
  forbidden = Operators("CUDA targets", {"aten::mm"}, [], of_host)
  assert not any(map(forbidden.runs_on_host, of_host))
  with pytest.raises(
    husk.Unsupported, match='; host_ops="allow" would run aten::unique_dim on the'
  ):
    forbidden.check("aten::unique_dim")


@pytest.mark.parametrize(
  "call, name",
  [
    (lambda x: torch.geqrf(x), "aten::geqrf"),
    (lambda x: torch.histogram(x, 3), "aten::histogram.bin_ct"),
    (lambda x: torch.histogramdd(x, 3), "aten::_histogramdd_(bin_edges|from_bin_cts)"),
  ],
)
def test_an_operator_that_torch_would_run_on_the_gpu_for_its_shapes(tmp_path, call, name):
  class Model(torch.nn.Module):
    def forward(self, x):
      return call(x * 2)[0]

  with pytest.raises(husk.Unsupported, match=f"no implementation of {name} ") as refused:
    husk.write(Model(), (X,), tmp_path, targets=["cuda:h200"], host_ops="forbid")
  text = str(refused.value)
  assert "on CUDA targets: compute it outside" in text and "While executing" not in text
  assert re.search(r"\(near test_operators.py:\d+ ", text), text


@pytest.mark.parametrize("target", ["host:avx2", "cuda:h200"])
def test_sparse_tensors(tmp_path, target):
  class Sparse(torch.nn.Module):
    def forward(self, x):
      return x.to_sparse()

  class Product(torch.nn.Module):
    def forward(self, x, y):
      return x @ y

  expected = r"aten::to_sparse makes a sparse tensor \(torch.sparse_coo\) \(near test_operators.py"
  with pytest.raises(husk.Unsupported, match=expected):
    husk.write(Sparse(), (X,), tmp_path, targets=[target])
  with pytest.raises(
    husk.Unsupported, match=r"the input x is a sparse tensor \(torch.sparse_csr\)"
  ):
    husk.write(Product(), (X.to_sparse_csr(), X), tmp_path, targets=[target])
