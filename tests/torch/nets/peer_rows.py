"""The rows of peer_programs.py, by the kinds of operators."""


def lines(text):
  return [" ".join(one.split()) for one in text.splitlines() if one.strip()]


def each(names, *forms):
  """The rows of several functions that take the same arguments."""
  return [form.replace("OP", name) for form in forms for name in names.split()]


ROWS = [
  # Functions of one tensor
  *each(
    "acos acosh asin asinh atan atanh cos cosh deg2rad erf erfc exp exp2 expm1 log log10 log1p "
    "log2 logit rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh lgamma digamma",
    "torch.OP(x) ; f w i: T[n,4]@1:3",
    "torch.OP(x) ; f[n,m,2]",
  ),
  *each(
    "abs ceil floor neg positive relu round sgn sign square trunc signbit isfinite isinf isnan "
    "isneginf isposinf angle",
    "torch.OP(x) ; f h w i u: T[n,4]@1:9",
    "torch.OP(x) ; f s t: T[n,m]",
  ),
  *each(
    "isfinite isinf isnan isneginf isposinf nan_to_num abs relu exp sign logical_not ceil round",
    "torch.OP(x / y) ; f w: T[n,4]@-1:1 T[n,4]@0:0",
    "torch.OP(x) ; f[0,4]",
    "torch.OP(x) ; f[]",
  ),
  *each(
    "celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu "
    "relu6 selu silu softplus softshrink softsign tanhshrink",
    "F.OP(x) ; f w h: T[n,6]",
  ),
  *lines("""
    x.bitwise_not() ; i s t c u b: T[n,4]
    x.logical_not() ; f i s u b: T[n,4]
    torch.frac(x) ; f d w: T[n,4]
    torch.round(x, decimals=2) ; f d: T[n,4]
    torch.round(x * 10, decimals=-1) ; f[n,4]
    torch.erfinv(x) ; f d: T[n,4]@-0.9:0.9
    torch.nan_to_num(x / y, nan=1.5, posinf=7.0, neginf=-7.0) ; f w: T[n,4]@-1:1 T[n,4]@0:0
    torch.special.expm1(x) ; f i: T[n,4]
    F.gelu(x, approximate='tanh') ; f w: T[n,4]
    F.hardtanh(x, -0.5, 1.5) ; f i: T[n,4]
    F.leaky_relu(x, 0.3) ; f[n,4]
    F.elu(x, 0.7) ; f[n,4]
    F.celu(x, 1.7) ; f[n,4]
    F.softplus(x, 2.0, 3.0) ; f[n,4]
    aten.elu(x, 1.5, 0.8, 0.6) ; f[n,4]
    F.threshold(x, 0.5, -3.0) ; f i s: T[n]
    F.threshold(x, 1, 2) ; f i: T[n,m,2]
    F.prelu(x, y) ; f[n,3,m] f[3]
    F.prelu(x, y) ; f w: T[n,3] T[1]
    F.rrelu(x, 0.1, 0.3) ; f[n,4]
    aten.rrelu_with_noise(x, torch.ones_like(x), 0.1, 0.9, False) ; f[n,4]
    x.to(torch.int64) ; f w b c u: T[n,4]
    x.to(torch.float32) ; i s u b h w d: T[n,4]
    x.to(torch.bool) ; f i u: T[n,4]
    x.to(torch.uint8) ; f i s: T[n,4]@0:200
    x.to(torch.int8) ; i s f: T[n,4]
    x.to(torch.float16) ; f d i: T[n,4]
    x.to(torch.bfloat16) ; f d i b: T[n,4]
    x.type_as(y) ; f[n,4] i[2]
    x.to(y) ; f[n,4] d[2]
    aten._to_copy(x, dtype=torch.float64) ; f i: T[n,4]
    aten._cast_Float(x) ; i b: T[n,4]
    aten._cast_Long(x) ; f[n,4]
    x.view(torch.int32) ; f[n,4]
    x.view(torch.int8) ; f[n,4]
    x.view(torch.float32) ; i[n,4]
    x.view(torch.int16) ; w h: T[n,4]
    x.clone() ; f b: T[n,4]
    x.clone(memory_format=torch.channels_last) ; f[n,3,4,5]
    x.contiguous(memory_format=torch.channels_last) + 1 ; f[n,3,4,5]
    x.detach() ; f[n,4]
    x.t().contiguous() ; f[n,4]
    torch.dropout(x, 0.5, False) ; f i: T[n,4]
    aten.native_dropout(x, 0.5, False) ; f[n,4]
    aten.alias(x) + 1 ; f[n,4]
    aten.lift_fresh_copy(x) ; f[n,4]
  """),
  # Functions of two and three tensors and of numbers
  *each(
    "add sub mul div maximum minimum atan2 fmod remainder floor_divide pow",
    "torch.OP(x, y) ; f w: T[n,4]@1:3 T[n,4]@1:3",
    "torch.OP(x, y) ; f[n,1,4]@1:3 f[m,1]@1:3",
    "torch.OP(x, y) ; i s: T[n,4]@1:5 T[4]@1:5",
    "torch.OP(x, y) ; i[n,4]@1:5 f[n,4]@1:5",
    "torch.OP(x, y) ; f[n,4]@-5:5 f[n,4]@-5:-1",
    "torch.OP(x, y) ; d[n,4]@1:3 f[4]@1:3",
    "torch.OP(x, y) ; h[n,4]@1:3 f[]@4:5",
    "torch.OP(x, y) ; f[n,4]@1:3 i[]@1:3",
  ),
  *each(
    "fmax fmin hypot copysign logaddexp logaddexp2 nextafter heaviside xlogy",
    "torch.OP(x, y) ; f[n,4]@1:3 f[n,4]@-3:3",
    "torch.OP(x, y) ; f[n,4]@1:3 f[4]@1:3",
  ),
  *each(
    "eq ne lt le gt ge logical_and logical_or logical_xor",
    "torch.OP(x, y) ; i b u: T[n,4]@0:3 T[n,4]@0:3",
    "torch.OP(x, y) ; f[n,4] f[1,4]",
    "torch.OP(x, y) ; i[n,4]@0:3 f[n,4]@0:3",
    "torch.OP(x, y) ; b[n,4] i[4]@0:3",
  ),
  *each(
    "eq ne lt le gt ge",
    "torch.OP(x, 2) ; f i w u: T[n,4]@0:4",
    "torch.OP(x, 2.5) ; f i: T[n,4]@0:4",
    "torch.OP(x, y) ; i[n,4]@0:4 =2",
  ),
  *each(
    "bitwise_and bitwise_or bitwise_xor",
    "torch.OP(x, y) ; i s c u b: T[n,4] T[4]",
    "torch.OP(x, 6) ; i s u: T[n,4]",
    "torch.OP(6, x) ; i[n,4]",
  ),
  *each(
    "bitwise_left_shift bitwise_right_shift",
    "torch.OP(x, y) ; i s c: T[n,4]@0:20 T[4]@0:3",
    "torch.OP(x, 2) ; i[n,4]",
  ),
  *each(
    "add sub mul div fmod remainder pow floor_divide",
    "torch.OP(x, 2) ; f i w u: T[n,4]@1:9",
    "torch.OP(x, 2.5) ; f i h: T[n,4]@1:9",
    "torch.OP(x, y) ; f[n,4]@1:4 =3",
    "torch.OP(x, y) ; i[n,4]@1:4 =1.5",
  ),
  *each("add sub mul div fmod remainder floor_divide", "torch.OP(x, -2) ; f i: T[n,4]@-9:9"),
  *each("add mul", "torch.OP(x, y) ; b[n,4] f[n,4]"),
  *each(
    "add sub mul",
    "torch.OP(x, y) ; u[n,4] c[n,4]",
    "torch.OP(x, y) ; z[n,4] z[4]",
    "torch.OP(x, y) ; z[n,4] f[4]",
  ),
  *lines("""
    torch.add(x, y, alpha=2) ; f i w: T[n,4] T[4]
    torch.sub(x, y, alpha=0.5) ; f[n,4] f[4]
    torch.rsub(x, y, alpha=3) ; f i: T[n,4] T[4]
    torch.rsub(x, 2.5, alpha=2) ; f[n,4]
    torch.rsub(x, 1) ; i[n,4]
    torch.div(x, y, rounding_mode='floor') ; f i u: T[n,4]@1:9 T[4]@1:4
    torch.div(x, y, rounding_mode='trunc') ; f i s: T[n,4]@-9:9 T[4]@1:4
    torch.div(x, 3, rounding_mode='floor') ; f i: T[n,4]@-9:9
    torch.div(x, -2.5, rounding_mode='trunc') ; f[n,4]@-9:9
    torch.true_divide(x, y) ; i[n,4] i[4]@1:5
    torch.floor_divide(x, -3) ; i[n,4]
    torch.remainder(5, x) ; i[n,4]@1:7
    torch.remainder(x, -2) ; i[n,4]
    torch.remainder(x, 1.5) ; i[n,4]
    torch.pow(2, x) ; f i: T[n,4]@0:5
    torch.pow(x, 0.5) ; f i: T[n,4]@1:9
    torch.pow(x, -1.5) ; f[n,4]@1:9
    torch.float_power(x, y) ; f i: T[n,4]@1:4 T[n,4]@1:3
    x ** 3 ; i s: T[n,4]
    2.0 - x ; f i: T[n,4]
    1 / x ; f i: T[n,4]@1:5
    torch.clamp(x, -1, 1) ; f i w s: T[n,4]
    torch.clamp(x, min=0.5) ; f i: T[n,4]
    torch.clamp(x, max=1.5) ; f w: T[n,4]
    torch.clamp(x, -0.5, 1.5) ; i[n,4]
    torch.clamp(x, y, z) ; f i c: T[n,4] T[4]@-3:0 T[4]@1:4
    torch.clamp(x, min=y) ; f[n,4] f[n,1]
    torch.clamp(x, 3, -1) ; f[n,4]
    torch.clip(x, -1, None) ; f[n,4]
    torch.clamp_min(x, y) ; f i: T[n,4] T[4]
    torch.where(x > 0, x, y) ; f i: T[n,4] T[4]
    torch.where(x, y, z) ; b[n,4] f[4] f[n,1]
    torch.where(x, 1.5, y) ; b[n,4] f[n,4]
    torch.where(x, y, 2) ; b[n,4] f[n,4]
    torch.where(x, 1.0, 2.0) ; b[n,4]
    torch.where(x, y, z) ; b[n,4] i[4] f[n,4]
    torch.where(x) ; b[n,4]
    x.masked_fill(y, -2.5) ; f[n,4] b[n,4]
    x.masked_fill(y, 3) ; i s: T[n,4] b[4]
    x.masked_fill(y, z) ; f[n,4] b[n,1] f[]
    torch.lerp(x, y, 0.3) ; f[n,4] f[n,4]
    torch.lerp(x, y, z) ; f[n,4] f[4] f[n,4]
    torch.addcmul(x, y, z, value=0.5) ; f i: T[n,4] T[4] T[n,1]
    torch.addcdiv(x, y, z, value=2) ; f[n,4] f[4] f[n,1]@1:3
    torch.ldexp(x, y) ; f[n,4] i[4]
    torch.isclose(x, y) ; f[n,4] f[4]
    torch.isclose(x, x + 1e-7, rtol=1e-3, atol=1e-2) ; f[n,4]
    torch.allclose(x, x) ; f[3,4]
    torch.equal(x, y) ; f[3,4] f[3,4]
    torch.bucketize(x, y) ; f i: T[n,4] T[6]
    torch.bucketize(x, torch.arange(5.0), right=True, out_int32=True) ; f[n,4]
    torch.searchsorted(y.sort().values, x) ; f[n,4] f[n,6]
    torch.complex(x, y) ; f d: T[n,4] T[n,4]
    torch.polar(x, y) ; f d: T[n,4]@0:2 T[n,4]
    torch.quantile(x, 0.4, dim=1) ; f[n,5]
    torch.rrelu(x, 0.2, 0.2, False) ; f[n,4]
    torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127) ; f[n,4]
    torch.fake_quantize_per_tensor_affine(x, 2.0, 0, 0, 255) ; f[3,4]@-9:9
    torch.fake_quantize_per_channel_affine(x, y, z, 1, -128, 127) ; f[n,4] f[4]@0.1:0.5 s[4]@0:3
    aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -128, 127) ; f[n,4]
    torch.cdist(x, y) ; f[n,m,4] f[n,k,4]
    torch.cdist(x, y, p=1.0) ; f[n,4] f[m,4]
    torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist') ; f[n,4] f[m,4]
    F.pairwise_distance(x, y) ; f[n,4] f[n,4]
    F.pdist(x) ; f[5,4]
    F.pdist(x, p=1.0) ; f[5,4]
    F.cosine_similarity(x, y, dim=1) ; f[n,4] f[4]
    F.cosine_similarity(x, y, dim=-1, eps=0.1) ; f[n,m,4] f[n,m,4]
    torch.cross(x, y, dim=1) ; f[n,3] f[n,3]
    torch.linalg.cross(x, y) ; f[n,3] f[1,3]
  """),
  # Complex numbers
  *each(
    "abs angle conj_physical exp log log2 log10 log1p expm1 sqrt rsqrt sin cos tan sinh cosh tanh "
    "asin acos atan asinh acosh atanh sigmoid square reciprocal neg sgn isnan isinf isfinite real "
    "imag view_as_real",
    "torch.OP(x) ; z[n,4]@0.1:0.9",
  ),
  *lines("""
    torch.conj(x) ; z[n,4]
    torch.conj(x) * y ; z[n,4] z[n,4]
    x.real + x.imag ; z Z: T[n,4]
    torch.view_as_complex(x) * 2 ; f[n,4,2]
    torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()) ; f[n,4,2]
    x / y ; z[n,4] z[n,4]
    x / 2.0 ; z[n,4]
    4.0 / x ; z[n,4]@1:2
    x ** 2.0 ; z[n,4]@1:2
    x ** y ; z[n,4]@1:2 z[n,4]@0:1
    x - 1.0 ; z[n,4]
    x @ y ; z[n,4] z[4,m]
    torch.bmm(x, y) ; z[n,3,4] z[n,4,2]
    torch.matmul(x, y) ; z[n,3,4] z[4,2]
    x.permute(1, 0).reshape(-1) ; z[n,4]
    x.sum(1) ; z[n,4]
    x.mean(-1) ; z[n,4]
    x.prod(1) ; z[n,4]
    torch.cat([x, y], 1) ; z[n,4] z[n,4]
    torch.cat([x, y], 0) ; z[n,4] f[m,4]
    torch.stack([x, x + 1], -1) ; z[n,4]
    x[:, 1:3].flip(1).roll(1, 0) ; z[n,4]
    x.expand(3, -1, -1).clone() ; z[n,4]
    torch.ones_like(x) + torch.full_like(x, 2) ; z[n,4]
    torch.zeros_like(x) + x ; z[n,4]
    torch.where(x.real > 0, x, y) ; z[n,4] z[n,4]
    x.to(torch.complex64) ; Z f: T[n,4]
    aten._reshape_copy(x, [12]) ; z[3,4]
    torch.linalg.norm(x) ; z[n,4]
    torch.linalg.vector_norm(x, dim=1) ; z[n,4]
    torch.norm(x, p='fro') ; z[n,4]
    (x * torch.polar(torch.ones_like(y), y)).abs() ; z[n,4] f[n,4]
    torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * y).flatten(-2) ; \
      f[n,m,8] z[m,4]
    torch.hstack([x, y]) ; z[n,4] z[n,2]
  """),
  # Reductions
  *each(
    "sum mean prod amax amin std var logsumexp norm",
    "torch.OP(x, dim=1) ; f w d: T[n,m,3]@0.5:2",
    "torch.OP(x, dim=-1, keepdim=True) ; f[n,m]",
    "torch.OP(x, dim=0) ; f[n,m]",
  ),
  *each(
    "sum mean amax amin std var",
    "torch.OP(x, dim=(0, 2)) ; f[n,m,3]",
    "torch.OP(x, dim=[1, -1], keepdim=True) ; f w: T[n,m,3]",
  ),
  *each("sum mean prod max min std var all any argmax argmin median", "torch.OP(x) ; f[n,m]"),
  *each(
    "sum prod max min argmax argmin amax amin any all aminmax",
    "torch.OP(x) ; i s u: T[n,4]@0:3",
  ),
  *each(
    "max min median argmax argmin all any aminmax",
    "torch.OP(x, dim=1) ; f i s: T[n,5]@0:9999",
    "torch.OP(x, dim=0, keepdim=True) ; f[n,5]",
  ),
  *each(
    "cumsum cumprod logcumsumexp", "torch.OP(x, dim=1) ; f d: T[n,m]", "torch.OP(x, -2) ; f[n,m,2]"
  ),
  *each(
    "cumsum cumprod",
    "torch.OP(x, 0) ; i s b: T[n,4]@1:3",
    "torch.OP(x, 0, dtype=torch.float32) ; s[n,4]@1:3",
  ),
  *each("cummax cummin", "torch.OP(x, 1) ; f i: T[n,5]"),
  *lines("""
    x.sum() ; b[n,4]
    x.sum(dtype=torch.float64) ; f i: T[n,4]
    x.sum(1, dtype=torch.int32) ; c[n,4]
    aten.sum.dim_IntList(x, [], False) ; f[n,4]
    aten.sum.dim_IntList(x, [], False, dtype=torch.int32) ; c[n,4]
    aten.sum.dim_IntList(x, None, True) ; f[n,4]
    aten.mean.dim(x, [], True) ; f[n,4]
    aten.mean.dim(x, None, False) ; f[n,4]
    aten.mean(x, dtype=torch.float64) ; f i: T[n,4]
    aten.amax(x, []) ; f[n,4]
    aten.var.dim(x, [], True, False) ; f[n,4]
    torch.prod(x, dtype=torch.float32) ; i[2,3]@1:3
    prims.prod(x, [0, 1]) ; f[n,4]
    prims.sum(x, [1]) ; f[n,4]
    torch.var(x, dim=1, correction=0) ; f[n,m]
    torch.var(x, dim=1, correction=2, keepdim=True) ; f[n,5]
    torch.std(x, unbiased=False) ; f[n,m]
    torch.var_mean(x, dim=(1, 2)) ; f[n,m,3]
    torch.std_mean(x, dim=1, keepdim=True) ; f[n,m]
    torch.var_mean(x, correction=0) ; f[n,m]
    x.any(dim=(0, 1)) ; b[n,m,3]
    x.all(dim=-1, keepdim=True) ; b u f: T[n,m]
    x.amax(()) ; f[n,m]
    x.argmax(dim=1, keepdim=True) ; f i: T[n,5]
    x.argmin(dim=-1) ; f[n,m,4]
    torch.linalg.vector_norm(x, 2) ; f[n,m]
    torch.linalg.vector_norm(x, 1, dim=1, keepdim=True) ; f[n,m]
    torch.linalg.vector_norm(x, float('inf'), dim=(0, 1)) ; f[n,m,3]
    torch.linalg.vector_norm(x, 0, dim=1) ; f[n,m]
    torch.linalg.vector_norm(x, 3.5, dim=-1) ; f[n,m]
    torch.linalg.vector_norm(x) ; f[]
    torch.linalg.norm(x, ord=2) ; f[3,4]
    torch.linalg.matrix_norm(x, ord='fro') ; f[n,m,3]
    torch.norm(x, p=1) ; f[n,m]
    torch.norm(x, p=0.5, dim=1, keepdim=True) ; f[n,m]
    torch.norm(x, p='fro', dim=(0, 1)) ; f[n,m]
    torch.norm(x, 2, 1, False, dtype=torch.float64) ; f[n,m]
    torch.count_nonzero(x, dim=1) ; i b: T[n,5]
    torch.nansum(x / y) ; f[n,4]@0:1 f[n,4]@0:0
    torch.nanmean(x, dim=1) ; f[n,m]
    torch.mode(x, 1) ; i[n,5]@0:3
    torch.kthvalue(x, 2, 1) ; f d i: T[n,5]@0:9999
    torch.kthvalue(x, 3, 0, keepdim=True) ; f[5,n]
    torch.topk(x, 3) ; f i: T[n,5]@0:9999
    torch.topk(x, 2, dim=0, largest=False) ; f[5,n]
    torch.topk(x, 2, dim=1, sorted=False).values.sort(1).values ; f[n,5]
    torch.sort(x) ; f i w: T[n,m]
    torch.sort(x, dim=0, descending=True) ; f[n,m]
    torch.sort(x, stable=True, dim=-2) ; i[n,m,2]
    torch.argsort(x, dim=1) ; f[n,m]
    torch.msort(x) ; f[n,4]
    x.trace() ; f i u: T[4,4]
    x.trace() ; f[3,5]
    torch.trace(x) ; f[n,n]
    torch.bincount(x) ; i[n]@0:5
    torch.bincount(x, minlength=8) ; i[n]@0:5
    torch.bincount(x, y) ; i[n]@0:5 f[n]
    torch.histc(x, 5, -2, 2) ; f[n,m]
    torch.unique(x) ; i[n,4]@0:4
    torch.unique(x, return_inverse=True, return_counts=True) ; i[n]@0:4
    torch.unique_consecutive(x) ; i[n]@0:2
    torch.numel(x) * x ; f[n,4]
    x.diff(dim=1) ; f[n,m]
    torch.trapezoid(x, dim=1) ; f[n,m]
    torch.corrcoef(x) ; f[3,n]
    torch.cov(x) ; f[3,n]
    torch.renorm(x, 2, 0, 1.5) ; f h: T[n,4]
    torch.renorm(x, 1, -1, 0.5) ; f[n,m]
  """),
  # Shapes
  *lines("""
    x.view(-1) ; f i: T[n,4]
    x.view(x.shape[0], -1) ; f[n,m,4]
    x.view(x.shape[0] * x.shape[1], 4) ; f[n,m,4]
    x.view(2, 2, x.shape[1]) ; f[4,n]
    x.reshape(x.shape[0], 2, -1) ; f[n,8]
    x.reshape(y.size(0), -1) ; f[n,m] i[n,1]
    x.reshape(-1, x.shape[0]) ; f[n,m]
    x.reshape(()) ; f[1,1]
    x.reshape(0, 5, 4) ; f[0,4,5]
    x.flatten() ; f[]
    x.flatten() ; f[n,m,4]
    x.flatten(1, -1) ; f[n,m,4]
    x.flatten(0, 1) ; f[n,m,4]
    x.unflatten(1, (2, 3)) ; f[n,6,m]
    x.unflatten(-1, (-1, 2)) ; f[n,4]
    aten._unsafe_view(x, [x.shape[0], 12]) ; f[n,3,4]
    aten._reshape_alias(x, [12], [1]) ; f[3,4]
    x.squeeze() ; f[n,1,4,1]
    x.squeeze(1) ; f[n,1,4]
    x.squeeze((1, -1)) ; f[n,1,4,1]
    x.squeeze(0) ; f[n,4]
    x.unsqueeze(-1) ; f i: T[n,4]
    x.unsqueeze(0).unsqueeze(2) ; f[n,4]
    prims.squeeze(x, [0, 2]) ; f[1,n,1,4]
    prims.view_of(x) + 1 ; f[n,4]
    prims.collapse(x, 1, 2) ; f[n,m,4]
    x.permute(2, 0, 1) ; f i: T[n,m,4]
    x.permute(-1, 0, -2) ; f[n,m,4]
    x.transpose(0, -1) ; f[n,m,4]
    x.movedim(1, -1) ; f[n,m,4]
    x.movedim((0, 1), (2, 0)) ; f[n,m,4]
    x.t() ; f[n,4]
    x.t() ; f[n]
    x.t() ; f[]
    x.T ; f[n,4]
    x.mT @ x ; f[n,m,4]
    x.swapaxes(0, 1) ; f[n,m]
    torch.adjoint(x) ; f[n,m,4]
    x.expand(3, -1, -1) ; f[n,4]
    x.expand(-1, x.shape[0]) ; f[n,1]
    x.expand(2, 3, 4) + 1 ; f[1,4]
    x.expand_as(y) ; f[n,1] f[n,m]
    x.broadcast_to(3, x.shape[0], 4) ; f[n,1]
    torch.broadcast_to(x, (2, 3)) ; f[]
    torch.broadcast_tensors(x, y) ; f[n,1] f[m]
    x.repeat(2, 3) ; f[n,4]
    x.repeat(2, 1, 2) ; f[n,4]
    x.repeat(1, x.shape[0]) ; f[n,4]
    x.tile(2, 2) ; f[n,4]
    x.tile((2,)) ; f[n,4]
    torch.tile(x, (2, 1, 3)) ; i[n,4]
    torch.repeat_interleave(x, 2) ; f[n,4]
    torch.repeat_interleave(x, 3, dim=1) ; f i: T[n,4]
    torch.repeat_interleave(x, y, dim=0) ; f[n,4] i[n]@0:3
    torch.repeat_interleave(x) ; i[n]@0:3
    torch.cat([x, y]) ; f w i: T[n,4] T[m,4]
    torch.cat([x, y, x], dim=-1) ; f[n,4] f[n,m]
    torch.cat([x, y]) ; f[n,4] i[m,4]
    torch.cat([x, torch.ones(2, 4), y]) ; f[n,4] f[0,4]
    torch.cat([x, y]) ; f[n,4] f[0]
    torch.stack([x, y]) ; f[n,4] f[n,4]
    torch.stack([x, y, x], -1) ; i[n,4] i[n,4]
    torch.stack((x,), 1) ; f[n,4]
    torch.hstack([x, y]) ; f i: T[n,4] T[n,2]
    torch.hstack([x, y]) ; f[n] i[m]
    torch.vstack([x, y]) ; f[4] f[n,4]
    torch.dstack([x, y]) ; f[n,4] f[n,4]
    torch.column_stack([x, y]) ; f[n] f[n,3]
    torch.column_stack([x, y]) ; i[] i[]
    torch.split(x, 2) ; f[6,n]
    torch.split(x, 2, dim=1) ; f[n,5]
    torch.split(x, [1, 4], dim=1) ; f[n,5]
    torch.split_with_sizes_copy(x, [2, 3], 1) ; f[n,5]
    prims.split_dim(x, 1, 2) ; f[n,6]
    torch.chunk(x, 3, 1) ; f[n,7]
    torch.chunk(x, 2) ; f[6,n]
    x.chunk(2, -1)[1] ; f[n,5]
    torch.tensor_split(x, 3, 1) ; f[n,7]
    torch.tensor_split(x, (1, 3), 1) ; f[n,7]
    x.unbind() ; f[3,n]
    x.unbind(1)[2] ; f[n,3]
    torch.hsplit(x, 2) ; f[n,6]
    x.narrow(1, 1, 2) ; f[n,4]
    x.narrow(0, 0, 2) ; f[n,4]
    x.narrow(1, -2, 2) ; f[n,4]
    x.narrow(1, y, 2) ; f[n,4] =1
    x.select(1, 2) ; f[n,4]
    x.select(0, -1) ; f[n,4]
    x[-1, 1:] ; f[n,4]
    x[:, ::2] ; f[n,7]
    x[1:] ; f[n,4]
    x[:-1] ; f[n,4]
    x[:, 1:100] ; f[n,4]
    x[:, -100:2] ; f[n,4]
    x[:, 3:1] ; f[n,4]
    x[2:2] ; f[n,4]
    x[:, :x.shape[0]] ; f[n,20]
    x[:x.shape[0] // 2] ; f[n,4]
    x[..., None, :, 0] ; f[n,m,4]
    x[y:] ; f[n,4] =1
    aten.slice_copy(x, 0, 0, 2, 1) ; f[n,4]
    x.unfold(1, 3, 2) ; f[n,7]
    x.unfold(0, 2, 1) ; f[n,4]
    x.unfold(0, 1, 1) ; f[]
    x.as_strided((2, 2), (1, 2)) ; f[3,4]
    x.as_strided((2, 2), (2, 1), 1) ; f[3,4]
    x[1:].as_strided((2, 2), (1, 4)) ; f[3,4]
    x.t().as_strided((2, 3), (4, 1), 2) ; f[3,4]
    x.view(-1)[2:].as_strided((2, 2), (1, 2)) ; f[3,4]
    x.diagonal() ; f[n,m]
    x.diagonal(1, 1, 2) ; f[n,4,5]
    x.diagonal(-1, -2, -1) ; f[n,4,5]
    torch.diag(x) ; f[n]
    torch.diag(x, -1) ; f[n]
    torch.diag(x, 1) ; f[4,5]
    torch.diag_embed(x) ; f[n,4]
    torch.diag_embed(x, -1, 0, 2) ; f[n,4]
    torch.diagflat(x) ; f[2,3]
    x.tril() ; f i b: T[n,m]
    x.tril(-1) ; f[n,4,5]
    x.triu(1) ; f[n,m]
    torch.tril_indices(4, 3) ; f[n]
    torch.triu_indices(3, 4, 1) ; f[n]
    x.flip(0) ; f[n,4]
    x.flip((0, -1)) ; f i: T[n,m]
    x.fliplr() ; f[n,4]
    x.flipud() ; f[n,4]
    x.roll(2) ; f[n,4]
    x.roll((1, -2), (0, 1)) ; f i: T[n,m]
    x.roll(5, 0) ; f[n,4]
    torch.rot90(x) ; f[n,m]
    torch.rot90(x, -2, (0, 2)) ; f[n,m,4]
    torch.rot90(x, 3, (1, 2)) ; f[n,m,4]
    torch.atleast_1d(x) ; f[]
    torch.atleast_2d(x) ; f[n]
    torch.atleast_3d(x) ; f[n,4]
    torch.meshgrid(x, y, indexing='ij') ; f[n] f[m]
    torch.meshgrid(x, y, indexing='xy') ; f[n] f[m]
    torch.cartesian_prod(x, y) ; f[n] f[m]
    torch.combinations(x) ; f[4]
    torch.block_diag(x, y) ; f[n,4] f[2,m]
    torch.kron(x, y) ; f[n,4] f[2,m]
    F.pixel_shuffle(x, 2) ; f[n,8,m,k]
    F.pixel_unshuffle(x, 2) ; f[n,2,4,6]
    F.channel_shuffle(x, 2) ; f[n,4,m,k]
    F.pad(x, (1, 2)) ; f i: T[n,4]
    F.pad(x, (1, 2, 0, 3), value=1.5) ; f w: T[n,m]
    F.pad(x, (-1, 2)) ; f[n,6]
    F.pad(x, (1, 1, 2, 2, 1, 0), 'constant', 2.0) ; f[n,m,4]
    F.pad(x, (1, 2), 'reflect') ; f[n,3,k]
    F.pad(x, (1, 2, 2, 1), 'reflect') ; f[n,3,p,q]
    F.pad(x, (1, 2, 2, 1, 1, 1), 'reflect') ; f[n,2,5,p,q]
    F.pad(x, (1, 2), 'replicate') ; f[n,3,k]
    F.pad(x, (1, 2), 'replicate') ; f[3,k]
    F.pad(x, (1, 2, 2, 1), 'replicate') ; f[n,3,p,q]
    F.pad(x, (1, 2, 2, 1, 1, 1), 'replicate') ; f[n,2,5,p,q]
    F.pad(x, (1, 2, 2, 1), 'circular') ; f[n,3,p,q]
    aten.constant_pad_nd(x, [0, 0, 1, 2], -1) ; f[n,4]
    F.one_hot(x, 5) ; i[n,4]@0:5
    F.unfold(x, (2, 3), padding=1, stride=2) ; f[n,3,p,q]
    F.unfold(x, 2, dilation=2) ; f[2,3,8,9]
    F.fold(x, (6, 7), (2, 3)) ; f[n,12,25]
    x.new_zeros(3, x.shape[0]) + 1 ; f i: T[n,4]
    x.new_ones((2, 2), dtype=torch.int32) ; f[n]
    x.new_full((x.shape[0], 2), 3.5) ; f[n,4]
    x.new_full((2, 3), 5, dtype=torch.int64) ; f[n,4]
    x.new_empty(2, 3).shape[1] * x ; f[n,4]
    torch.zeros_like(x) ; f i b: T[n,4]
    torch.ones_like(x, dtype=torch.float64) ; f[n,4]
    torch.full_like(x, 2.5) ; f d: T[n,4]
    torch.full_like(x, 3, dtype=torch.int32) ; f[n,4]
    torch.empty_like(x).fill_(2) ; f i: T[n,4]
    torch.zeros(x.shape[0], 3) ; f[n,4]
    torch.full((2, x.shape[0]), 1.5) ; f[n,4]
    torch.full((), True) & x ; b[n]
    torch.eye(x.shape[0]) + x ; f[n,n]
    torch.eye(3, 5) ; f[n]
    torch.arange(x.shape[0]) ; f[n,4]
    torch.arange(1, x.shape[0] + 1, dtype=torch.float32) + x ; f[n]
    torch.arange(5, 0, -2) ; f[n]
    torch.arange(-5.0, 5.0, 1.5) ; f[n]
    torch.arange(0, 10, 3) + x ; i[n,4]
    torch.arange(5, 5) ; f[n]
    torch.linspace(0, 1, 5) * x[:, None] ; f[n]
    torch.linspace(-3, 3, x.shape[0]) + x ; f[n]
    torch.linspace(2, 4, 1) ; f[n]
    torch.linspace(2, 4, 0) ; f[n]
    torch.logspace(0, 2, 4) ; f[n]
    torch.hann_window(x.shape[0]) * x ; f[n]
    torch.hann_window(8, periodic=False) ; f[n]
    torch.hamming_window(6) ; f[n]
    torch.scalar_tensor(2.5) * x ; f[n]
    torch.tensor([1.0, 2.0, 3.0, 4.0]) * x ; f i: T[n,4]
    torch.tensor(3, dtype=torch.int32) + x ; i[n,4]
    x * x.size(0) + x.dim() ; f[n,4]
    torch.tensor(x.shape[0]) * x ; f i: T[n,4]
    torch.as_tensor(x.shape[0] / 2) * x ; f[n,4]
    x.fill_(2.5) ; f i: T[n,4]
    x.fill_(y) ; f[n,4] d[]
    x.zero_() ; f[n,4]
    torch.fill(x, y) ; f[n,4] i[]
    x.copy_(y) ; f[n,4] i[4]
    aten.copy(x, y) ; f[n,4] d[n,1]
    aten.empty.memory_format([x.shape[0], 2]).zero_() + 1 ; f[n]
    aten.empty_strided([2, 3], [3, 1]).fill_(1) ; f[n]
    x.numpy_T if hasattr(x, 'numpy_T') else x.T ; f[n,4]
    x.resolve_conj() ; f[n,4]
    torch.ravel(x) ; f[n,4]
    x.view_as(y) ; f[n,4] f[n,2,2]
    x.reshape_as(y) ; f[n,m] f[n,m,1]
    torch.constant_pad_nd(x, (1, 1)) ; f[n,4]
    x.sum_to_size(1, 4) ; f[3,4]
    torch.take_along_dim(x, y, 1) ; f[n,4] i[n,2]@0:4
    torch.vander(x) ; f[n]
  """),
  # Reading and writing by indices
  *lines("""
    x[y] ; f i w: T[6,4] i[n]@0:6
    x[y] ; f[6,4] s[n]@0:6
    x[y] ; f[6,4] i[n,m]@-6:6
    x[y, z] ; f[6,4] i[n]@0:6 i[n]@0:4
    x[y, z] ; f[6,4,3] i[n,1]@0:6 i[m]@0:4
    x[:, y] ; f[n,6] i[3]@0:6
    x[:, y] ; f[n,6] i[]@0:6
    x[:, :, y] ; f[n,m,6] i[k]@0:6
    x[y, :, z] ; f[6,n,4] i[3]@0:6 i[3]@0:4
    x[:, y, z] ; f[n,6,4] i[3]@0:6 i[3]@0:4
    x[y, None] ; f[6,4] i[n]@0:6
    x[y][:, z] ; f[6,4] i[n]@0:6 i[2]@0:4
    x[y] ; f[n,4] b[n]
    x[y] ; f[n,4] b[n,4]
    x[y].sum() ; f[n,4] b[n,4]
    x[[0, 2, 1]] ; f[6,n]
    x[:, [1, 0]] ; f[n,4]
    x[:, y + torch.arange(1), :].reshape(x.size(0), 1, -1, 2) ; f[n,8,6] i[]@0:8
    aten.index.Tensor_hacked_twin(x, [y]) ; f[6,4] i[n]@0:6
    aten._unsafe_index(x, [y, None]) ; f[6,4] i[n]@0:6
    x.index_select(0, y) ; f i b: T[6,n] i[m]@0:6
    x.index_select(-1, y) ; f[n,6] s[3]@0:6
    x.index_select(0, y) ; f[6,n] i[]@0:6
    torch.gather(x, 1, y) ; f i: T[n,6] i[n,3]@0:6
    torch.gather(x, 0, y) ; f[6,n] i[m,n]@0:6
    torch.gather(x, -1, y, sparse_grad=True) ; f[n,6] i[n,2]@0:6
    torch.take(x, y) ; f[3,4] i[n]@0:12
    torch.masked_select(x, y) ; f[n,4] b[n,4]
    torch.masked_select(x, x > 0) ; f[n,4]
    torch.nonzero(x) ; f i b: T[n,4]@0:2
    torch.nonzero(x) ; b[n]
    torch.nonzero(x, as_tuple=True) ; b[n,4]
    torch.argwhere(x > 0) ; f[n,4]
    x.index_put((y,), z) ; f[6,4] i[n]@0:6 f[4]
    x.index_put((y,), z, accumulate=True) ; f i w: T[6,4] i[n]@0:6 T[n,4]
    x.index_put((y,), z, accumulate=True) ; f[6] i[n]@0:6 f[n]
    x.index_put((torch.tensor([0, 3, 5]),), y) ; f h w i: T[6] T[3]
    x.index_put((y, z), u, accumulate=True) ; f[6,4] i[n]@0:6 i[n]@0:4 f[n]
    x.index_put((y, z), u, accumulate=True) ; f[6,4,2] i[n]@0:6 i[n]@0:4 f[1]
    x.index_put((y, z), u, accumulate=True) ; i[6,4] s[n]@0:6 s[n]@0:4 i[1]
    x.index_put((y, z), u) ; f[6,4,2] i[1]@0:6 i[1]@0:4 f[2]
    x.index_put((y, z, u), v, accumulate=True) ; f[3,3,3] i[n]@0:3 i[n]@0:3 i[n]@0:3 f[n]
    aten.index_put(x, [None, y], z) ; f[n,6] i[1]@0:6 f[n,1]
    aten.index_put(x, [None, None, y], z) ; s[1,2,5,3] s[]@0:5 s[1,2,3]
    aten.index_put(x, [None, y, None, z], u, True) ; f[2,4,4,2] i[4]@0:4 i[4]@0:2 f[4,2,4]
    aten.index_put(x, [y, None, z], u, True) ; f[2,4,4] i[3]@0:2 i[3]@0:4 f[4]
    aten.index_put(x, [y, None, None], z, True) ; f[4,3,2] i[2]@0:4 f[2,3,2]
    aten.index_put(x, [y], z) ; f[n,4] b[n] f[]
    aten._unsafe_index_put(x, [y], z, True) ; f[6] i[n]@0:6 f[n]
    aten._index_put_impl(x, [y], z, True, False) ; f[6] i[n]@0:6 f[n]
    torch.index_add(x, 0, y, z) ; f i: T[6,4] i[n]@0:6 T[n,4]
    torch.index_add(x, 1, y, z, alpha=2) ; f[n,6] i[3]@0:6 f[n,3]
    torch.index_copy(x, 0, torch.tensor([2, 0]), y) ; f[6,n] f[2,n]
    torch.index_fill(x, 1, y, 3.5) ; f[n,6] i[2]@0:6
    torch.index_reduce(x, 0, y, z, 'amax') ; f[6,4] i[n]@0:6 f[n,4]
    torch.scatter(x, 1, y, 2.5) ; f[n,6] i[n,1]@0:6
    torch.scatter(x, 0, y, 3) ; i[6,4] i[1,4]@0:6
    torch.scatter(x, 1, torch.tensor([[0, 2, 5]]), y) ; f i: T[n,6] T[1,3]
    torch.scatter(x, 0, y, z, reduce='add') ; f[6,4] i[n,4]@0:6 f[n,4]
    torch.scatter_add(x, 0, y, z) ; f i w: T[6,4] i[n,4]@0:6 T[n,4]
    torch.scatter_add(x, 1, y, z) ; f[n,6] i[n,3]@0:6 f[n,3]
    x.masked_scatter(y, z) ; f[n,4] b[n,4] f[64]
    torch.select_scatter(x, y, 1, 2) ; f[n,4] f[n]
    torch.select_scatter(x, y, 0, -1) ; f[n,4] f[4]
    torch.slice_scatter(x, y, 1, 1, 3) ; f[n,4] f[n,2]
    torch.slice_scatter(x, y, 1, 0, 6, 2) ; f[n,6] f[n,3]
    torch.slice_scatter(x, y, -1, -3, -1) ; f[n,4] f[n,2]
    torch.slice_scatter(x, y, 1, 0, x.shape[1]) ; f[n,m] f[n,m]
    torch.diagonal_scatter(x, y) ; f[4,4] f[4]
    torch.put(x, torch.tensor([1, 5]), y) ; f[3,4] f[2]
    F.embedding(x, y) ; i[n,m]@0:10 f[10,4]
    F.embedding(x, y) ; s[n]@0:10 w[10,4]
  """),
  *each(
    "sum mean amax amin prod",
    "torch.scatter_reduce(x, 0, y, z, 'OP') ; f i: T[6,4]@1:4 i[n,4]@0:6 T[n,4]@1:4",
    "torch.scatter_reduce(x, 0, y, z, 'OP', include_self=False) ; "
    "f i: T[6,4]@1:4 i[n,4]@0:6 T[n,4]@1:4",
  ),
  *lines("""
    F.embedding(x, y, padding_idx=2) ; i[n,m]@0:10 w[10,4]
    F.embedding_bag(x, y) ; i[n,3]@0:10 f[10,4]
    F.embedding_bag(x, y, mode='sum') ; s[n,3]@0:10 h[10,4]
    F.embedding_bag(x, y, mode='max') ; i[n,3]@0:10 f[10,4]
    F.embedding_bag(x, y, torch.tensor([0, 2, 2]), mode='sum') ; i[n]@0:10 f[10,4]
    F.embedding_bag(x, y, torch.tensor([0, 1]), mode='mean') ; i[n]@0:10 f[10,4]
    F.embedding_bag(x, y, torch.tensor([0, 1]), mode='max') ; i[n]@0:10 f[10,4]
    F.embedding_bag(x, y, torch.tensor([0, 2]), mode='sum', per_sample_weights=z) ; i[n]@0:10 \
      f[10,4] f[n]
    F.embedding_bag(x, y, torch.tensor([0, 2, 5]), mode='sum', include_last_offset=True) ; \
      i[5]@0:10 f[10,4]
    F.embedding_bag(x, y, mode='mean', padding_idx=2) ; i[n,3]@0:10 f[10,4]
    aten._embedding_bag(y, x, torch.tensor([0, 2]))[0] ; i[n]@0:10 f[10,4]
    aten._embedding_bag_forward_only(y, x, torch.tensor([0, 2]))[0] ; i[n]@0:10 f[10,4]
    aten.embedding_bag(y, x, torch.tensor([0, 2]), False, 0, False, None) [0] ; i[n]@0:10 f[10,4]
  """),
  # Products
  *lines("""
    x @ y ; f w d h: T[n,4] T[4,m]
    x @ y ; i s c u: T[n,4] T[4,m]
    x @ y ; f[4] f[4]
    x @ y ; f[n,4] f[4]
    x @ y ; f[4] f[4,m]
    x @ y ; f[n] f[n]
    x @ y ; f[n,3,4] f[4,m]
    x @ y ; f[n,3,4] f[n,4,m]
    x @ y ; f[n,1,3,4] f[m,4,2]
    x @ y ; f[3,4] f[n,2,4,5]
    x @ y ; f[4] f[n,4,5]
    x @ y ; f[n,3,4] f[4]
    x @ y ; f[n,0] f[0,3]
    x @ y ; c[n,0] c[0,3]
    x.mm(y) ; f i: T[n,4] T[4,m]
    torch.bmm(x, y) ; f w i: T[n,3,4] T[n,4,m]
    torch.mv(x, y) ; f i: T[n,4] T[4]
    torch.dot(x, y) ; f i: T[n] T[n]
    torch.vdot(x, y) ; f[n] f[n]
    torch.outer(x, y) ; f i: T[n] T[m]
    torch.outer(x, y) ; f[n] d[m]
    torch.inner(x, y) ; f[n,4] f[m,4]
    torch.addmm(x, y, z) ; f w: T[m] T[n,4] T[4,m]
    torch.addmm(x, y, z, beta=16, alpha=5) ; f[1,1] f[n,8] f[8,m]
    torch.addmm(x, y, z, beta=0) ; f[m] f[n,4] f[4,m]
    torch.addmv(x, y, z, beta=0.5, alpha=2) ; f[n] f[n,4] f[4]
    torch.addr(x, y, z, alpha=2) ; f[n,m] f[n] f[m]
    torch.baddbmm(x, y, z) ; f[n,3,m] f[n,3,4] f[n,4,m]
    torch.baddbmm(x, y, z, beta=0.5, alpha=2) ; f[m] f[n,3,4] f[n,4,m]
    torch.addbmm(x, y, z) ; f[3,m] f[n,3,4] f[n,4,m]
    torch.chain_matmul(x, y, z) ; f[n,4] f[4,m] f[m,3]
    torch.linalg.multi_dot([x, y, z]) ; f[n,4] f[4,5] f[5,3]
    torch.einsum('bij,bjk->bik', x, y) ; f[n,3,4] f[n,4,m]
    torch.einsum('ij,kj->ik', x, y) ; f[n,4] f[m,4]
    torch.einsum('ii->i', x) ; f[4,4]
    torch.einsum('bhid,bhjd->bhij', x, y) ; f[n,2,m,4] f[n,2,k,4]
    torch.einsum('...ij,...j->...i', x, y) ; f[n,2,3,4] f[n,2,4]
    torch.tensordot(x, y, dims=1) ; f[n,4] f[4,m]
    torch.tensordot(x, y, dims=([1, 2], [0, 1])) ; f[n,3,4] f[3,4,m]
    aten._trilinear(x, y, z, [], [], [], [0]) ; f[2,3,4] f[2,3,4] f[2,3,4]
    aten._trilinear(x, y, z, [1], [], [2], [3]) ; f[2,4,5] f[2,3,4,5] f[2,3,5]
    F.bilinear(x, y, z) ; f[n,3] f[n,4] f[2,3,4]
    F.linear(x, y) ; f w: T[n,4] T[3,4]
    F.linear(x, y, z) ; f[n,m,4] f[3,4] f[3]
    F.linear(x, y) ; f[4] f[3,4]
    F.linear(x, y) ; f[n,4] f[4]
    torch._int_mm(x, y) ; c[20,8] c[8,16]
    torch.mm(x, y.t()) + z ; f[n,4] f[m,4] f[m]
    torch.mm(x, y).tanh().mm(y.t()) ; f[n,4] f[4,m]
    torch.mm(torch.mm(x, y), torch.mm(x, y)) ; f[4,4] f[4,4]
    torch.matrix_power(x, 3) ; f[n,4,4]
    torch.det(x) ; f[4,4]
    torch.det(x) ; f[n,3,3]
    torch.linalg.slogdet(x) ; f[n,3,3]
    torch.logdet(x @ x.mT + torch.eye(3)) ; f[n,3,3]
    torch.linalg.inv(x + 4 * torch.eye(3)) ; f[n,3,3]
    torch.linalg.solve(x + 4 * torch.eye(3), y) ; f[n,3,3] f[n,3,2]
    torch.linalg.cholesky(x @ x.mT + torch.eye(3)) ; f[n,3,3]
    torch.linalg.qr(x).Q.abs() ; f[4,3]
    torch.linalg.svdvals(x) ; f[n,3,4]
    torch.linalg.eigvalsh(x + x.mT) ; f[n,3,3]
    torch.linalg.matrix_exp(x) ; f[n,3,3]
    torch.linalg.pinv(x) ; f[n,3,4]
    torch.triangular_solve(y, x.tril() + 3 * torch.eye(3), upper=False).solution ; f[n,3,3] \
      f[n,3,2]
  """),
  # Normalizations, losses and attention
  *lines("""
    F.softmax(x, 1) ; f w h: T[n,m]
    F.softmax(x, dim=-1, dtype=torch.float32) ; w i: T[n,m]
    F.softmax(x, 0) ; f[n,m,2]
    F.log_softmax(x, 1) ; f w: T[n,m]
    F.log_softmax(x, -2, dtype=torch.float64) ; i[n,m]
    F.softmin(x, 1) ; f[n,m]
    F.gumbel_softmax(x, hard=True).sum(1) ; f[n,4]
    aten._softmax(x, 1, False) ; f[n,m]
    aten._safe_softmax(x, 1) ; f[n,m]
    aten._log_softmax(x, 1, False) ; f[n,m]
    F.normalize(x, dim=1) ; f[n,m]
    F.layer_norm(x, (4,)) ; f w: T[n,m,4]
    F.layer_norm(x, (3, 4), y, z, 1e-3) ; f[n,3,4] f[3,4] f[3,4]
    F.layer_norm(x, x.shape[1:]) ; f[n,3,4]
    aten.native_layer_norm(x, [4], y, z, 0.5) ; f[n,4] f[4] f[4]
    F.rms_norm(x, (4,), y) ; f w: T[n,m,4] T[4]
    F.rms_norm(x, (4,), eps=1e-3) ; f[n,4]
    F.group_norm(x, 2, y, z) ; f[n,4,m] f[4] f[4]
    F.group_norm(x, 4) ; f[n,4,m,k]
    aten.native_group_norm(x, y, z, 2, 4, 6, 2, 1e-3) ; f[2,4,6] f[4] f[4]
    F.instance_norm(x) ; f[n,3,m,k]
    F.instance_norm(x, weight=y, bias=z, eps=1e-3) ; f h: T[n,3,m] T[3] T[3]
    F.batch_norm(x, y, z, u, v) ; f[n,3,m] f[3] f[3]@1:2 f[3] f[3]
    F.batch_norm(x, y, z) ; f[n,3] f[3] f[3]@1:2
    F.batch_norm(x, y, z, training=True) ; f[n,3,m,k] f[3] f[3]@1:2
    aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-3) ; f[n,3,m]
    aten._native_batch_norm_legit_no_training(x, None, None, y, z, 0.1, 1e-3) ; f[n,3,m] f[3] \
      f[3]@1:2
    F.local_response_norm(x, 2) ; f[n,4,m,k]
    torch._weight_norm(x, y, 0) ; f[4,m] f[4,1]
    aten._weight_norm_interface(x, y) ; f[4,m] f[4,1]
    F.mse_loss(x, y) ; f[n,m] f[n,m]
    F.mse_loss(x, y, reduction='none') ; f[n,m] f[n,m]
    F.mse_loss(x, y, reduction='sum') ; f[n,m] f[n,m]
    F.l1_loss(x, y) ; f[n,m] f[n,m]
    F.smooth_l1_loss(x, y, beta=0.5) ; f[n,m] f[n,m]
    F.huber_loss(x, y, delta=0.7) ; f[n,m] f[n,m]
    F.nll_loss(x, y) ; f[n,4] i[n]@0:4
    F.nll_loss(x, y, z, ignore_index=2, reduction='sum') ; f[n,4] i[n]@0:4 f[4]@1:2
    F.nll_loss(x, y, reduction='none') ; f[n,4,m] i[n,m]@0:4
    F.nll_loss(x, y) ; f[4] i[]@0:4
    F.cross_entropy(x, y) ; f w: T[n,4] i[n]@0:4
    F.cross_entropy(x, y, reduction='none') ; f[n,4,m] i[n,m]@0:4
    F.cross_entropy(x, y, label_smoothing=0.1) ; f[n,4] i[n]@0:4
    F.cross_entropy(x, y.softmax(1)) ; f[n,4] f[n,4]
    F.binary_cross_entropy(x, y) ; f[n,4]@0.1:0.9 f[n,4]@0:1
    F.binary_cross_entropy_with_logits(x, y, pos_weight=z) ; f[n,4] f[n,4]@0:1 f[4]@1:2
    F.kl_div(x, y) ; f[n,4] f[n,4]@0.1:1
    F.kl_div(x, y, reduction='batchmean', log_target=True) ; f[n,4] f[n,4]
    F.kl_div(x, y, reduction='none') ; f[n,4] f[n,4]@0:1
    F.poisson_nll_loss(x, y) ; f[n,4] f[n,4]@1:3
    F.gaussian_nll_loss(x, y, z) ; f[n,4] f[n,4] f[n,4]@1:2
    F.hinge_embedding_loss(x, torch.ones_like(x)) ; f[n,4]
    F.margin_ranking_loss(x, y, torch.ones_like(x)) ; f[n] f[n]
    F.triplet_margin_loss(x, y, z) ; f[n,4] f[n,4] f[n,4]
    F.cosine_embedding_loss(x, y, torch.ones(x.shape[0])) ; f[n,4] f[n,4]
    F.multi_margin_loss(x, y) ; f[n,4] i[n]@0:4
    F.soft_margin_loss(x, torch.ones_like(x)) ; f[n,4]
    F.scaled_dot_product_attention(x, y, z) ; f w h: T[n,2,m,8] T[n,2,k,8] T[n,2,k,8]
    F.scaled_dot_product_attention(x, x, x, is_causal=True) ; f w: T[n,2,m,8]
    F.scaled_dot_product_attention(x, y, y, is_causal=True) ; f[n,2,m,8] f[n,2,k,8]
    F.scaled_dot_product_attention(x, y, y, z) ; f[n,2,m,8] f[n,2,k,8] f[m,k]
    F.scaled_dot_product_attention(x, y, y, z > 0) ; f[n,2,m,8] f[n,2,k,8] f[n,1,m,k]
    F.scaled_dot_product_attention(x, y, y, scale=0.3) ; f[n,m,8] f[n,k,8]
    F.scaled_dot_product_attention(x, y, y, enable_gqa=True) ; f[n,4,m,8] f[n,2,k,8]
    F.scaled_dot_product_attention(x, y, y, enable_gqa=True, is_causal=True) ; f[2,4,5,8] \
      f[2,2,5,8]
    aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0] ; f[n,2,m,8]
    F.multi_head_attention_forward(x, x, x, 8, 2, y, z, None, None, False, 0.0, u, v, False)[0] \
      ; f[m,n,8] f[24,8] f[24] f[8,8] f[8]
  """),
  # Pools, convolutions and images
  *lines("""
    F.max_pool1d(x, 3) ; f[n,3,p]
    F.max_pool1d(x, 3, 2, 1, 1, True) ; f[n,3,p]
    F.max_pool2d(x, 2) ; f w: T[n,3,p,q]
    F.max_pool2d(x, (3, 2), (2, 1), (1, 0)) ; f[n,3,p,q]
    F.max_pool2d(x, 3, 2, 1, 2) ; f[n,3,p,q]
    F.max_pool2d(x, 3, 2, ceil_mode=True) ; f[n,3,p,q]
    F.max_pool2d(x, 3, 2, 1, ceil_mode=True) ; f[n,3,7,8]
    F.max_pool2d(x, 2) ; f[3,p,q]
    F.max_pool2d(x, 2, return_indices=True) ; f[n,3,p,q]
    F.max_pool2d(-x.abs(), 3, 1, 1, return_indices=True) ; f[n,3,p,q]
    F.max_pool3d(x, 2) ; f[n,2,4,p,q]
    F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True) ; f[n,2,4,p,q]
    F.max_pool3d(x, 2, return_indices=True) ; f[n,2,4,6,6]
    F.max_pool3d(x, 2, dilation=(1, 2, 1)) ; f[n,2,4,p,q]
    F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) ; f[n,3,6,8]
    F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2) ; f[n,2,4,6,6]
    F.avg_pool1d(x, 3) ; f[n,3,p]
    F.avg_pool1d(x, 3, 2, 1, True, False) ; f[n,3,p]
    F.avg_pool2d(x, 2) ; f w: T[n,3,p,q]
    F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)) ; f[n,3,p,q]
    F.avg_pool2d(x, 3, 2, 1, ceil_mode=True) ; f[n,3,p,q]
    F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) ; f[n,3,p,q]
    F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False) ; f[n,3,p,q]
    F.avg_pool2d(x, 3, divisor_override=5) ; f[n,3,p,q]
    F.avg_pool2d(x, 2) ; f[3,p,q]
    F.avg_pool3d(x, 2) ; f[n,2,4,p,q]
    F.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), True, False) ; f[n,2,4,p,q]
    F.lp_pool2d(x, 2.0, 3) ; f[n,3,p,q]
    F.adaptive_avg_pool1d(x, 1) ; f[n,3,p]
    F.adaptive_avg_pool1d(x, 5) ; f[n,3,p]
    F.adaptive_avg_pool1d(x, 20) ; f[3,12]
    F.adaptive_avg_pool2d(x, 1) ; f w: T[n,3,p,q]
    F.adaptive_avg_pool2d(x, (3, 5)) ; f[n,3,p,q]
    F.adaptive_avg_pool2d(x, (None, 2)) ; f[n,3,12,14]
    F.adaptive_avg_pool2d(x, (4, 7)) ; f[n,3,12,14]
    F.adaptive_avg_pool3d(x, (2, 3, 4)) ; f[n,2,4,p,q]
    F.adaptive_max_pool1d(x, 3) ; f[n,3,p]
    F.adaptive_max_pool2d(x, (3, 5)) ; f[n,3,12,14]
    F.adaptive_max_pool2d(x, (3, 5), return_indices=True) ; f[n,3,12,14]
    F.adaptive_max_pool2d(x, 2) ; f[n,3,p,q]
    F.adaptive_max_pool3d(x, (2, 3, 4)) ; f[n,2,4,12,14]
    F.conv1d(x, y) ; f w: T[n,3,p] T[4,3,3]
    F.conv1d(x, y, z, 2, 1, 2) ; f[n,2,p] f[6,2,3] f[6]
    F.conv1d(x, y, None, 2, 1, 1, 2) ; f[n,4,p] f[6,2,3]
    F.conv1d(x, y, padding='same') ; f[n,3,p] f[4,3,4]
    F.conv2d(x, y) ; f w h: T[n,3,p,q] T[4,3,3,3]
    F.conv2d(x, y, z, (2, 1), (1, 0), (1, 2)) ; f[n,3,p,q] f[4,3,3,2] f[4]
    F.conv2d(x, y, padding='same') ; f[n,3,p,q] f[4,3,3,2]
    F.conv2d(x, y, padding='valid', stride=2) ; f[n,3,p,q] f[4,3,3,3]
    F.conv2d(x, y, None, 1, 1, 1, 4) ; f[n,4,p,q] f[4,1,3,3]
    F.conv2d(x, y, None, 1, 1, 1, 2) ; f[n,4,p,q] f[8,2,3,3]
    F.conv2d(x, y) ; f[3,p,q] f[4,3,3,3]
    F.conv2d(F.pad(x, (1, 2, 0, 1)), y) ; f[n,3,p,q] f[4,3,3,3]
    F.conv3d(x, y, z, 1, 1) ; f[n,2,4,p,q] f[3,2,3,3,3] f[3]
    F.conv3d(x, y, None, (1, 2, 2), 'valid', 1) ; f[n,2,4,p,q] f[3,2,2,3,3]
    torch.conv_tbc(x, y, z, 1) ; f[p,n,3] f[3,3,4] f[4]
    F.conv_transpose1d(x, y, z, 2, 1, 1) ; f[n,3,p] f[3,4,3] f[4]
    F.conv_transpose2d(x, y) ; f w: T[n,3,m,k] T[3,4,3,3]
    F.conv_transpose2d(x, y, z, (2, 3), (1, 0), (1, 2), 1) ; f[n,3,m,k] f[3,4,3,4] f[4]
    F.conv_transpose2d(x, y, None, 2, 1, 0, 2, 2) ; f[n,4,m,k] f[4,3,3,3]
    F.conv_transpose3d(x, y, stride=2) ; f[n,2,3,m,k] f[2,3,2,2,2]
    aten.convolution(x, y, None, [2], [1], [1], False, [0], 1) ; f[n,3,p,q] f[4,3,3,3]
    aten._convolution(x, y, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, False, False, True, \
      True) ; f[n,3,p,q] f[4,3,3,3]
    aten.convolution(x, y, None, [2], [1], [1], True, [1], 1) ; f[n,3,m,k] f[3,4,3,3]
    F.interpolate(x, scale_factor=2.0) ; f w: T[n,3,m,k]
    F.interpolate(x, scale_factor=(1.5, 0.5), mode='nearest') ; f[n,3,p,q]
    F.interpolate(x, size=(7, 9)) ; f[n,3,p,q]
    F.interpolate(x, size=(7, 9), mode='nearest-exact') ; f[n,3,p,q]
    F.interpolate(x, size=(7, 9), mode='bilinear', align_corners=True) ; f[n,3,p,q]
    F.interpolate(x, scale_factor=2, mode='bilinear') ; f w: T[n,3,m,k]
    F.interpolate(x, scale_factor=0.5, mode='bilinear', recompute_scale_factor=True) ; f[n,3,p,q]
    F.interpolate(x, size=(7, 9), mode='bilinear', antialias=True) ; f[2,3,12,14]
    F.interpolate(x, scale_factor=1.5, mode='bicubic', align_corners=True) ; f[n,3,p,q]
    F.interpolate(x, size=9, mode='linear') ; f[n,3,p]
    F.interpolate(x, size=(3, 7, 9), mode='trilinear') ; f[n,2,4,p,q]
    F.interpolate(x, size=9) ; f[n,3,p]
    F.interpolate(x, size=(3, 7, 9)) ; f[n,2,4,p,q]
    F.interpolate(x, size=y.shape[2:], mode='bilinear') ; f[n,3,5,6] f[n,3,p,q]
    aten.upsample_nearest1d.vec(x, None, [2.0]) ; f[n,3,p]
    aten.upsample_nearest2d.vec(x, [8, 9], None) ; f[n,3,p,q]
    aten.upsample_bilinear2d.vec(x, None, True, [2.0, 1.5]) ; f[n,3,m,k]
    F.grid_sample(x, y, align_corners=True) ; f[n,3,6,7] f[n,m,k,2]@-1:1
    F.grid_sample(x, y, 'nearest', 'border', False) ; f[n,3,6,7] f[n,m,k,2]@-1.5:1.5
    F.grid_sample(x, y, 'bicubic', 'reflection', True) ; f[n,3,6,7] f[n,m,k,2]@-1.5:1.5
    F.grid_sample(x, y, align_corners=False) ; f[n,2,4,5,6] f[n,3,m,k,3]@-1:1
    F.affine_grid(x, (2, 3, 5, 6), align_corners=False) ; f[2,2,3]
  """),
  # Spectra and random numbers
  *lines("""
    torch.fft.fft(x) ; f z: T[n,8]
    torch.fft.fft(x, 6, 1, 'ortho') ; f[n,8]
    torch.fft.ifft(x) ; z[n,8]
    torch.fft.rfft(x) ; f[n,9]
    torch.fft.rfft(x, dim=1) ; f[n,8,3]
    torch.fft.irfft(x) ; z[n,5]
    torch.fft.fft2(x) ; f[n,4,6]
    torch.fft.rfft2(x, norm='ortho') ; f[n,4,6]
    torch.fft.irfft2(x) ; z[n,4,4]
    torch.fft.fftshift(x) ; f[n,m]
    torch.fft.fftfreq(8) ; f[n]
    torch.stft(x, 8, return_complex=True, window=torch.hann_window(8)) ; f[n,32]
    torch.stft(x, 8, 3, 6, torch.hann_window(6), return_complex=True) ; f[40]
    torch.stft(x, 8, 2, return_complex=True, window=torch.ones(8), center=False) ; f[n,32]
    torch.stft(x, 8, return_complex=True, window=y, onesided=False, normalized=True) ; f[n,32] f[8]
    torch.istft(torch.stft(x, 8, 2, return_complex=True, window=torch.hann_window(8)), 8, 2, \
      window=torch.hann_window(8)) ; f[2,32]
    (torch.rand_like(x) < 1).all() ; f d: T[n,4]
    (torch.rand(x.shape[0], 64).mean() > 0.3) & (x.sum() < 1e9) ; f[n]
    torch.randn(x.shape[0], 200).std() > 0.5 ; f[n]
    torch.randn_like(x).abs().max() < 9 ; f d: T[n,4]
    torch.randint(2, 5, (x.shape[0], 9)).sum() >= 18 * x.shape[0] ; f[n]
    torch.randint_like(x, 3).max() < 3 ; i[n,4]
    (torch.bernoulli(x) <= 1).all() ; f d: T[n,4]@0:1
    torch.bernoulli(torch.ones_like(x)) ; f[n,4]
    torch.bernoulli(x, p=0.0) ; f[n,4]@0:1
    (torch.multinomial(x, 3, replacement=True) < 4).all() ; f d: T[n,4]@1:2
    torch.multinomial(x, 2).sort().values ; f[2]@1:2
    (x.uniform_(2, 3) >= 2).all() ; f d: T[n,4]
    (x.exponential_(2.0) >= 0).all() ; f[n,4]
    (aten.normal_functional(x, 50.0, 0.1) > 40).all() ; f[n,4]
    torch.normal(x, 0.0) ; f[n,4]
    torch.randperm(6).sort().values ; f[n]
    (F.dropout(x, 0.5, True) * 0) ; f[n,4]
    F.dropout(x, 0.0, True) ; f[n,4]
    F.dropout2d(x, 1.0, True) ; f[n,3,m,k]
    F.alpha_dropout(x, 0.5, False) ; f[n,4]
  """),
  # Gradients that are written as operators
  *lines("""
    aten.tanh_backward(x, y) ; f[n,4] f[n,4]
    aten.sigmoid_backward(x, y) ; f[n,4] f[n,4]
    aten.gelu_backward(x, y) ; f[n,4] f[n,4]
    aten.gelu_backward(x, y, approximate='tanh') ; f[n,4] f[n,4]
    aten.elu_backward(x, 1.0, 1.0, 1.0, False, y) ; f[n,4] f[n,4]
    aten.elu_backward(x, 0.7, 1.0, 1.5, True, y) ; f[n,4] f[n,4]
    aten.leaky_relu_backward(x, y, 0.1, False) ; f[n,4] f[n,4]
    aten.softplus_backward(x, y, 2.0, 20.0) ; f[n,4] f[n,4]
    aten.hardtanh_backward(x, y, -1, 1) ; f[n,4] f[n,4]
    aten.threshold_backward(x, y, 0.5) ; f i: T[n,4] T[n,4]
    aten.rrelu_with_noise_backward(x, y, torch.ones_like(y), 0.1, 0.9, False, False) ; f[n,4] \
      f[n,4]
    aten._softmax_backward_data(x, y, 1, torch.float32) ; f[n,4] f[n,4]
    aten._log_softmax_backward_data(x, y, 1, torch.float32) ; f[n,4] f[n,4]
    aten.embedding_dense_backward(x, y, 10, -1, False) ; f[n,m,4] i[n,m]@0:10
    aten.native_layer_norm_backward(x, y, [4], y.mean(1, True), y.var(1, keepdim=True), None, \
      None, [True, False, False])[0] ; f[n,4] f[n,4]
    aten.native_group_norm_backward(x, y, z, z + 1, None, 2, 4, 6, 2, [True, False, False])[0] ; \
      f[2,4,6] f[2,4,6] f[2,2]
    aten.convolution_backward(x, y, z, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, \
      True, True]) ; f[n,4,p,q] f[n,3,p,q] f[4,3,3,3]
    aten.convolution_backward(x, y, z, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, \
      True, False]) ; f[2,4,3,3] f[2,3,7,7] f[4,3,3,3]
    aten.max_pool2d_with_indices_backward(x, y, [2, 2], [2, 2], [0, 0], [1, 1], False, \
      F.max_pool2d(y, 2, return_indices=True)[1]) ; f[n,3,3,4] f[n,3,6,8]
    aten.avg_pool2d_backward(x, y, [2, 2], [2, 2], [0, 0], False, True, None) ; f[n,3,3,4] \
      f[n,3,6,8]
    aten._adaptive_avg_pool2d_backward(x, y) ; f[n,3,3,4] f[n,3,6,8]
    aten._adaptive_avg_pool2d_backward(x, y) ; f[n,3,5,7] f[n,3,p,q]
    aten.convolution_backward(x, y, z, [4], [2, 1], [1, 0], [1, 2], True, [1, 0], 2, \
      [True, True, True]) ; f[n,4,9,8] f[n,4,5,6] f[4,2,2,2]
    aten.upsample_nearest2d_backward(x, [6, 8], [2, 3, 3, 4], 2.0, 2.0) ; f[2,3,6,8]
    aten.nll_loss_backward(x, y, z, None, 1, -100, torch.tensor(4.0)) ; f[] f[n,4] i[n]@0:4
    aten.mse_loss_backward(x, y, z, 1) ; f[] f[n,4] f[n,4]
    aten.native_dropout_backward(x, y, 2.0) ; f[n,4] b[n,4]
    aten.select_backward(x, [5, 4], 0, 2) ; f[4]
    aten.slice_backward(x, [8, 4], 0, 1, 6, 2) ; f[3,4]
  """),
  # Numbers of the data, and several results
  *lines("""
    x * y.sum().item() ; f[n] f[4]
    x + y.item() ; f i: T[n,4] T[]
    x[: y.item()] ; f[9] i[]@1:5
    torch.zeros(y.item(), 3) ; f[n] i[]@1:5
    torch.full((x.shape[0],), y.item()) ; f[n] f[]
    torch.arange(y.item()) ; f[n] i[]@1:5
    (x, x + 1, [x * 2, {'a': x - 1}]) ; f[n,4]
    (x, x) ; f[n,4]
    x ; f i b: T[n,4]
    (x.shape[0], x) ; f[n,4]
    (3, 2.5, True, x) ; f[n]
    torch.ops.aten.sym_size.int(x, 0) * x ; f[n,4]
    x.is_floating_point() * x ; f i: T[n]
    x * float(len([1, 2])) ; f[n]
    torch.cond(x.sum() > 0, lambda one: one + 1, lambda one: one * 2, (x,)) ; f[n,4]
    torch.cond(x.shape[0] > 3, lambda one: one + 1, lambda one: one * 2, (x,)) ; f[n,4]
    x.add_(1).mul_(y).relu_() ; f[n,4] f[4]
    (x.add_(y), x) ; f i: T[n,4] T[4]
    x[:, 1].mul_(2) + x[:, 0] ; f[n,4]
    torch.ops.higher_order.associative_scan(lambda a, b: a + b, x, 0) if False else x.cumsum(0) \
      ; f[n,4]
    x.addcmul_(x, y, value=2).clamp_(-1, 1) ; f[n,4] f[n,4]
  """),
]

LAYERS = [
  *each(
    "ReLU ReLU6 GELU SiLU Mish ELU SELU CELU Hardswish Hardsigmoid Softsign Tanh Sigmoid "
    "LogSigmoid Softplus PReLU Identity Flatten",
    "nn.OP() ; f[n,6]",
  ),
  *lines("""
    nn.Linear(4, 3) ; f[n,4]
    nn.Linear(4, 3, bias=False) ; f[n,m,4]
    nn.Linear(10, 10) ; f[n,m,10]
    nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)) ; f[n,4]
    nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()) ; f[n,3,p,q]
    nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), \
      nn.Flatten(2)) ; f[n,3,p,q]
    nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5), \
      nn.Softmax(1)) ; f[n,3,p,q]
    nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.GLU(1)) ; f[n,3,p]
    nn.Sequential(nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4)) ; f[n,2,4,p,q]
    nn.ConvTranspose2d(3, 4, 3, 2, 1, 1) ; f[n,3,m,k]
    nn.ConvTranspose1d(3, 4, 3, 2) ; f[n,3,m]
    nn.Conv2d(4, 4, 3, padding='same', padding_mode='reflect') ; f[n,4,p,q]
    nn.LayerNorm(4) ; f[n,m,4]
    nn.RMSNorm(4) ; f[n,m,4]
    nn.GroupNorm(2, 4) ; f[n,4,m]
    nn.InstanceNorm2d(3, affine=True) ; f[n,3,m,k]
    nn.InstanceNorm1d(3, track_running_stats=True) ; f[n,3,m]
    nn.Embedding(10, 4) ; i[n,m]@0:10
    nn.EmbeddingBag(10, 4, mode='mean') ; i[n,3]@0:10
    nn.Bilinear(3, 4, 2) ; f[n,3] f[n,4]
    nn.CosineSimilarity() ; f[n,4] f[n,4]
    nn.PixelShuffle(2) ; f[n,8,m,k]
    nn.Upsample(scale_factor=2, mode='bilinear') ; f[n,3,m,k]
    nn.Unfold(2) ; f[n,3,m,k]
    nn.Fold((6, 7), (2, 3)) ; f[n,12,25]
    nn.ReplicationPad3d(1) ; f[n,2,3,m,k]
    nn.ReflectionPad2d(1) ; f[n,2,m,k]
    nn.ZeroPad2d((1, 2, 0, 1)) ; f[n,2,m,k]
    nn.MultiheadAttention(8, 2, batch_first=True) ; f[n,m,8] f[n,k,8] f[n,k,8]
    nn.MultiheadAttention(8, 2, kdim=4, vdim=6) ; f[m,n,8] f[k,n,4] f[k,n,6]
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) ; f[n,m,8]
    nn.TransformerEncoderLayer(8, 2, 16, norm_first=True) ; f[m,n,8]
    nn.TransformerDecoderLayer(8, 2, 16, batch_first=True) ; f[n,m,8] f[n,k,8]
    nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2) ; f[n,m,8]
    nn.Transformer(8, 2, 1, 1, 16, batch_first=True) ; f[n,m,8] f[n,k,8]
    nn.LSTM(4, 6) ; f[5,n,4]
    nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True) ; f[n,5,4]
    nn.GRU(4, 6, batch_first=True) ; f[n,5,4]
    nn.RNN(4, 6) ; f[5,n,4]
    nn.LSTMCell(4, 6) ; f[n,4]
    nn.GRUCell(4, 6) ; f[n,4]
    nn.RNNCell(4, 6, nonlinearity='relu') ; f[n,4]
    nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)) ; f[n,4]
    nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)) ; f[n,4]
    nn.Softmax2d() ; f[n,3,m,k]
    nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]) ; f[n,8] i[n]@0:20
    nn.CrossEntropyLoss() ; f[n,4] i[n]@0:4
    nn.CTCLoss() ; f[m,2,5] i[2,3]@1:5 i[2]@3:4 i[2]@1:3
    nn.HuberLoss() ; f[n,4] f[n,4]
    nn.PairwiseDistance() ; f[n,4] f[n,4]
    nn.ChannelShuffle(2) ; f[n,4,m,k]
    nn.LPPool1d(2, 3) ; f[n,3,p]
    nn.FractionalMaxPool2d(2, output_size=(3, 4), _random_samples=torch.full((2, 3, 2), 0.5)) ; \
      f[2,3,8,9]
    nn.Dropout(0.5) ; f[n,4]
  """),
]
