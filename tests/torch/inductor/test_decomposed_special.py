"""Special functions on CUDA targets, against eager mode and against mpmath."""

import decomposed
import mpmath
import pytest
import torch

ATEN = torch.ops.aten
INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1, 2, 8, 10, 0.5, 1e-30, 1e30])
# float32 is as good as eager mode, whose error at some arguments is above the usual tolerance.
TOLERANCES = {
  torch.float32: {"rtol": 2e-5, "atol": 2e-5},
  torch.float64: {"rtol": 1e-9, "atol": 1e-9},
  torch.float16: {"rtol": 2e-3, "atol": 2e-3},
}


def check(op, *args, dtypes=tuple(TOLERANCES)):
  """Compares in each dtype. The results are finite where those of eager mode are."""
  for dtype in dtypes:
    cast = [arg.to(dtype) if isinstance(arg, torch.Tensor) else arg for arg in args]
    if dtype is torch.float16:  # eager mode lacks some operators in half precision
      wide = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in cast]
      expected = op(*wide).half()
    else:
      expected = op(*cast)
    tensors = [arg for arg in cast if isinstance(arg, torch.Tensor)]

    def function(*tensors, cast=cast):
      left = list(tensors)
      return op(*(left.pop(0) if isinstance(arg, torch.Tensor) else arg for arg in cast))

    traced = decomposed.graph(function, tuple(tensors))
    assert op._schema.name not in {name.partition(".")[0] for name in decomposed.operators(traced)}
    decomposed.equal(traced(*tensors), expected, **TOLERANCES[dtype])


@pytest.mark.parametrize(
  "name",
  ["special_i0e", "special_i1e", "special_spherical_bessel_j0", "special_airy_ai", "digamma"],
)
def test_of_all_numbers(name):
  x = torch.cat([torch.linspace(-17.03, 21.9, 400), EDGES])
  # Eager mode's Airy function has errors of up to 3e-6 between -5 and -2.
  dtypes = (torch.float32,) if name == "special_airy_ai" else tuple(TOLERANCES)
  check(getattr(ATEN, name).default, x, dtypes=dtypes)


@pytest.mark.parametrize("scaled", ["", "scaled_"])
@pytest.mark.parametrize("kind", ["k0", "k1"])
def test_modified_bessel_functions(kind, scaled):
  x = torch.cat([torch.linspace(0.05, 12, 300), torch.tensor([1e-4, 80.0]), EDGES, -EDGES])
  op = getattr(ATEN, f"special_{scaled}modified_bessel_{kind}").default
  check(op, x, dtypes=(torch.float32, torch.float64))


def test_quantiles_of_the_normal_distribution():
  p = torch.cat([torch.linspace(0, 1, 401), torch.logspace(-37, -2, 100), EDGES])
  check(ATEN.special_ndtri.default, p)
  smaller = torch.logspace(-307, -30, 100, dtype=torch.float64)
  check(ATEN.special_ndtri.default, smaller, dtypes=(torch.float64,))


def test_zeta():
  s = torch.tensor([0.5, 1, 1.01, 2, 2.5, 3, 4, 7, 12, 30, 60]).unsqueeze(1)
  q = torch.cat([torch.linspace(0.3, 40, 100), torch.tensor([INF, NAN, 0, -1, 900])])
  check(ATEN.special_zeta.default, s, q, dtypes=(torch.float32, torch.float64))
  negative = torch.tensor([-0.25, -0.7, -1.3, -3.9, -17.2])
  check(ATEN.special_zeta.default, s, negative, dtypes=(torch.float32, torch.float64))


@pytest.mark.parametrize("n", range(5))
def test_polygamma(n):
  # Not the middle of each unit, where functions have zeros: near them eager mode has few digits.
  negative = torch.arange(-5, 0).unsqueeze(1) + torch.tensor([0.12, 0.2, 0.3, 0.6, 0.7, 0.8, 0.88])
  x = torch.cat([torch.linspace(0.1, 30, 200), negative.flatten(), torch.tensor([INF, NAN, 1e30])])
  check(lambda_of_polygamma(n), x, dtypes=(torch.float32, torch.float64))


def lambda_of_polygamma(n):
  def op(x):
    return ATEN.polygamma.default(n, x)

  op._schema = ATEN.polygamma.default._schema
  return op


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name):
  torch.manual_seed(3)
  values = torch.cat([torch.rand(15) * 3, torch.rand(15) * 40, torch.logspace(-5, 4, 15)])
  edges = torch.tensor([0.0, 1, INF, NAN, -1])
  values = torch.cat([values, edges])
  op = getattr(ATEN, name).default
  check(op, values.unsqueeze(1), values, dtypes=(torch.float32, torch.float64))
  near = values[:45].unsqueeze(1) * (1 + torch.linspace(-0.1, 0.1, 9))
  check(op, values[:45].unsqueeze(1), near, dtypes=(torch.float32, torch.float64))


def definition(function, *args):
  """The values of a function of mpmath."""
  columns = zip(*(arg.tolist() for arg in torch.broadcast_tensors(*args)))
  return torch.tensor([float(function(*values)) for values in columns], dtype=torch.float64)


@pytest.mark.parametrize(
  "op, function, low, high",
  [
    (ATEN.special_airy_ai.default, mpmath.airyai, -30, 12),
    (ATEN.digamma.default, mpmath.digamma, -7.97, 30),
    (ATEN.special_i0e.default, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), -9, 20),
    (ATEN.special_modified_bessel_k1.default, lambda x: mpmath.besselk(1, x), 0.1, 9),
  ],
)
def test_definitions(op, function, low, high):
  x = torch.linspace(low, high, 57, dtype=torch.float64)
  result = decomposed.graph(op, (x,))(x)
  torch.testing.assert_close(result, definition(function, x), rtol=1e-12, atol=1e-13)


def test_the_smaller_incomplete_gamma_function_keeps_its_digits():
  a = torch.tensor([0.5, 3, 30, 400, 5000, 1e-4], dtype=torch.float64)
  x = torch.tensor([20, 40, 90, 600, 5600, 30], dtype=torch.float64)
  result = decomposed.graph(ATEN.igammac.default, (a, x))(a, x)

  def upper(a, x):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)

  torch.testing.assert_close(result, definition(upper, a, x), rtol=1e-9, atol=0)


# Orthogonal polynomials

POLYNOMIALS = [
  "hermite_polynomial_h",
  "hermite_polynomial_he",
  "laguerre_polynomial_l",
  "legendre_polynomial_p",
  *(f"{kind}chebyshev_polynomial_{n}" for kind in ("", "shifted_") for n in "tuvw"),
]


def with_degree(op, degree):
  return lambda x: op(x, degree)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
  packet = getattr(ATEN, f"special_{name}")
  x = torch.tensor([-1.5, -1, -0.7, 0, 0.3, 0.95, 1, 1.25])
  n = torch.tensor([0.0, 1, 2, 5, 12, 20, -1, 3.7]).unsqueeze(1)
  # Their values grow with the degree, and so do the errors of the recurrence.
  for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
    args = x.to(dtype), n.to(dtype)
    traced = decomposed.graph(packet.default, args)
    expected = packet.default(*args)
    decomposed.equal(traced(*args), expected, rtol=tolerance, atol=tolerance)
    for degree in (-2, 0, 1, 4, 9, 70):
      one = decomposed.graph(with_degree(packet.n_scalar, degree), args[:1])
      scale = {"rtol": 10 * tolerance, "atol": 10 * tolerance}
      decomposed.equal(one(args[0]), packet.n_scalar(args[0], degree), **scale)


def test_a_degree_above_the_limit_of_eager_mode():
  op = ATEN.special_hermite_polynomial_h.default
  args = torch.tensor([0.1, 0.2]), torch.tensor([129.0, 2.0])
  decomposed.equal(decomposed.graph(op, args)(*args), op(*args))
