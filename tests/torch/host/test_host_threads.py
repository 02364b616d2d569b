"""Host kernels on threads: the results, their order, and failed checks."""

import copy

import built_tools  # sets the path
import hir_interpreter
import husk
import pytest
import torch
from function_module import FunctionModule
from host_threads import Threads
from husk.host import image as host_image
from husk.host import kernels as host_kernels
from torch.export import Dim

ISAS = host_image.isas()
pytestmark = pytest.mark.skipif(not ISAS, reason="no ISA of this machine is known here")
assert built_tools.ROOT.is_dir()


def exported(function, args, folder, isa=ISAS[0] if ISAS else None, shapes=None):
  model = FunctionModule(function)
  path = husk.write(model, args, folder, dynamic_shapes=shapes, targets=(f"host:{isa}",))
  return model, hir_interpreter.Program(path)


def ran(program, args, threads=None):
  """Runs the program on threads; returns the outputs, and the inputs after the run."""
  if threads is not None:
    threads.regions.clear()
    for image in program.images.values():
      threads.give(image)
  mine = copy.deepcopy(args)
  (target,) = program.variants
  outputs = program.run(target, **{value["name"]: one for value, one in zip(program.inputs, mine)})
  return [one.clone() for one in [*outputs.values(), *mine] if isinstance(one, torch.Tensor)]


WIDE = torch.randn(600, 331, generator=torch.Generator().manual_seed(1))
FUNCTIONS = {
  "maps": lambda self, x: (x * 2 + x.exp(), x.t().contiguous() + 1, x.half(), x.bfloat16()),
  "reductions": lambda self, x: (
    x.sum(),
    x.amax(),
    x.argmin(),
    (x > 100).any(),
    x.double().sum(),
    (x.double() * 0.001 + 1).prod(),
    x.var(),
    x.sum(0),
    x.var(0),
  ),
  "rows": lambda self, x: (
    torch.softmax(x, -1),
    torch.nn.functional.layer_norm(x, (331,)),
    x.var(1),
    x.argmax(1),
  ),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_on_threads(name, isa, tmp_path):
  args = (WIDE,)
  model, program = exported(FUNCTIONS[name], args, tmp_path, isa)
  expected = torch.utils._pytree.tree_leaves(model(*args))
  for count in (1, 2, 3, 8):
    threads = Threads(count)
    results = ran(program, args, threads)
    for result, right in zip(results, expected):
      torch.testing.assert_close(result, right, rtol=3e-5, atol=1e-4)
    assert bool(threads.regions) == (count > 1) and all(2 <= n <= count for n in threads.regions), (
      threads.regions
    )
    for _ in range(5):  # the same bits each time
      assert all(
        torch.equal(one, other) for one, other in zip(ran(program, args, threads), results)
      ), count


def test_one_thread_is_none(tmp_path):
  args = (WIDE,)
  _, program = exported(FUNCTIONS["reductions"], args, tmp_path)
  alone = ran(program, args)
  assert all(torch.equal(one, other) for one, other in zip(ran(program, args, Threads(1)), alone))


def test_small_work_stays_on_the_calling_thread(tmp_path):
  threads = Threads(4)
  _, program = exported(
    lambda self, x: x * 2, (torch.ones(16, 100),), tmp_path, shapes=[{0: Dim("rows", max=4000)}]
  )
  for rows, bodies in ((16, []), (163, []), (164, [2]), (4000, [4])):
    (result, _) = ran(program, (torch.ones(rows, 100),), threads)
    assert (result == 2).all() and threads.regions == bodies, rows


def test_float_atomics_have_one_order(tmp_path):
  """`index_add` adds at indices from data, which threads would do in any order."""

  def function(self, x, i):
    return (
      torch.zeros(50).index_put((i,), x, accumulate=True),
      torch.zeros(50, dtype=torch.int64).index_put((i,), (x * 100).long(), accumulate=True),
    )

  torch.manual_seed(5)
  args = (torch.rand(100000), torch.randint(0, 50, (100000,)))
  model, program = exported(function, args, tmp_path)
  expected = model(*args)
  threads = Threads(4)
  results = ran(program, args, threads)
  torch.testing.assert_close(results[0], expected[0], rtol=1e-4, atol=1e-4)
  assert torch.equal(results[1], expected[1])
  alone = ran(program, args, Threads(1))
  for _ in range(5):
    results = ran(program, args, threads)
    assert torch.equal(results[0], alone[0]) and torch.equal(results[1], alone[1])


@pytest.mark.parametrize(
  "kind, threads",
  [("float*", "1"), ("at::Half*", "1"), ("int64_t*", "husk_kernels::threads_for(ks0)")],
)
def test_sums_that_need_one_thread(kind, threads):
  text = (
    "// work: ks0\n  #pragma omp parallel\n  atomic_add(&out_ptr0[x], y);\n"
    "  int n = omp_get_max_threads();"
  )
  assert host_kernels._with_threads(text, {"out_ptr0": kind}) == (
    f"  #pragma omp parallel num_threads({threads})\n"
    f"  {'husk_kernels::add' if threads == '1' else 'atomic_add'}(&out_ptr0[x], y);\n"
    "  int n = husk_kernels::threads_for(ks0);"
  )


@pytest.mark.parametrize("count", [1, 4])
def test_a_failed_check_ends_the_kernel_with_its_number(count, tmp_path):
  args = (torch.rand(300, 200), torch.randint(0, 300, (500,)))
  _, program = exported(lambda self, x, i: x[i] * 2, args, tmp_path)
  threads = Threads(count)
  (result, *_) = ran(program, args, threads)
  assert torch.equal(result, args[0][args[1]] * 2) and bool(threads.regions) == (count > 1)
  for place in (0, 250, 499):
    wrong = args[1].clone()
    wrong[place] = 300
    for _ in range(20):
      with pytest.raises(hir_interpreter.CheckFailed, match="index out of bounds"):
        ran(program, (args[0], wrong), threads)
  (again, *_) = ran(program, args, threads)
  assert torch.equal(again, result)


@pytest.mark.parametrize("count", [1, 4])
def test_integer_division_by_zero_is_a_failed_check(count, tmp_path):
  args = (torch.arange(60000), torch.full((60000,), 7))
  _, program = exported(
    lambda self, x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc")), args, tmp_path
  )
  threads = Threads(count)
  results = ran(program, args, threads)
  assert torch.equal(results[0], args[0] // 7) and torch.equal(results[1], args[0] % 7)
  wrong = args[1].clone()
  wrong[59000] = 0
  with pytest.raises(hir_interpreter.CheckFailed, match="an integer was divided by 0"):
    ran(program, (args[0], wrong), threads)
