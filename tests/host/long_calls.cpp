#include <husk/ops.h>

#include "correct_calls.h"

namespace husk::host_test {

namespace {

constexpr int64_t kEndless = int64_t{1} << 34;  // elements, which nobody waits for
constexpr int64_t kLong = int64_t{1} << 19;     // elements, for which Husk asks a few times

std::vector<int64_t> generator_state() { return {HUSK_HOST_GENERATOR_BYTES / 8}; }

}  // namespace

void add_endless_calls(std::deque<Call>& calls) {
  constexpr int64_t n = kEndless, k = 1 << 17;  // k * k is n
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  const auto f32 = int{HUSK_F32}, f64 = int{HUSK_F64}, i64 = int{HUSK_I64}, i32 = int{HUSK_I32},
             c64 = int{HUSK_C64}, i8 = int{HUSK_I8}, mask = int{HUSK_BOOL};
  // elementwise
  call("aten::add.Tensor").repeated(c64, {n}).repeated(c64, {n}).number(1).repeated(c64, {n});
  call("aten::exp").repeated(c64, {k, k}).repeated(c64, {k, k});
  call("aten::fake_quantize_per_tensor_affine_cachemask")
      .repeated(f32, {n})
      .real(0.5)
      .number(2)
      .number(0)
      .number(15)
      .repeated(f32, {n})
      .repeated(mask, {n});
  call("aten::gcd").repeated(i64, {n}, 6).repeated(i64, {n}, 4).repeated(i64, {n});
  call("aten::where.self")
      .repeated(mask, {n})
      .repeated(f32, {n})
      .repeated(f32, {n})
      .repeated(f32, {n});
  // indexing
  call("aten::index.Tensor").repeated(f32, {5}).repeated(i64, {n}).as_list(1).repeated(f32, {n});
  call("aten::index.Tensor").repeated(f32, {n}).repeated(mask, {n}).as_list(1).repeated(f32, {n});
  call("aten::index_put_")
      .repeated(f32, {5, n})
      .repeated(i64, {2})
      .as_list(1)
      .repeated(f32, {2, n})
      .number(1);
  call("aten::scatter_.src").repeated(f32, {n}).number(0).repeated(i64, {n}).repeated(f32, {n});
  call("aten::scatter_add_")
      .repeated(f32, {k, k})
      .number(1)
      .repeated(i64, {k, k})
      .repeated(f32, {k, k});
  call("aten::scatter_reduce_.two")
      .repeated(f32, {n})
      .number(0)
      .repeated(i64, {5})
      .repeated(f32, {5})
      .text("mean")
      .number(0);
  call("aten::gather").repeated(f32, {n}).number(0).repeated(i64, {n}).number(0).repeated(f32, {n});
  call("aten::searchsorted.Tensor")
      .repeated(f32, {9})
      .repeated(f32, {n})
      .number(0)
      .number(1)
      .none(2)
      .repeated(i64, {n});
  call("aten::searchsorted.Tensor")
      .repeated(f32, {n})
      .repeated(f32, {3})
      .number(0)
      .number(1)
      .none()
      .repeated(i64, {n})
      .repeated(i64, {3});
  call("aten::histc").repeated(f32, {n}).number(5).number(0).number(0).repeated(f32, {5});
  call("aten::histc").repeated(f32, {5}).number(n).number(0).number(7).repeated(f32, {n});
  call("aten::histogram.bin_ct")
      .repeated(f32, {n})
      .number(5)
      .none(2)
      .number(0)
      .repeated(f32, {5})
      .repeated(f32, {6});
  call("aten::bincount").repeated(i64, {n}).none().number(2).repeated(i64, {2});
  call("aten::bincount").repeated(i64, {5}).none().number(n).repeated(i64, {n});
  call("aten::bincount:sizes").repeated(i64, {n}).none().number(2).result();
  call("aten::nonzero").repeated(f32, {n}).repeated(i64, {n, 1});
  call("aten::nonzero_static").repeated(f32, {5}).number(n).number(-1).repeated(i64, {n, 1});
  call("husk::unsuppressed").repeated(f32, {n, 4}).real(0.5).repeated(mask, {n});
  call("aten::masked_select").repeated(f32, {n}).repeated(mask, {n}).repeated(f32, {n});
  call("aten::masked_scatter")
      .repeated(f32, {n})
      .repeated(mask, {n})
      .repeated(f32, {n})
      .repeated(f32, {n});
  call("aten::repeat_interleave.Tensor").repeated(i64, {1}, n).none().repeated(i64, {n});
  call("aten::repeat_interleave.Tensor:sizes").repeated(i64, {n}).none().result();
  // linalg
  call("aten::_cdist_forward")
      .repeated(f32, {k, 3})
      .repeated(f32, {k, 3})
      .real(2)
      .none()
      .repeated(f32, {k, k});
  call("aten::_cdist_forward")
      .repeated(f32, {3, n})
      .repeated(f32, {3, n})
      .real(3)
      .none()
      .repeated(f32, {3, 3});
  call("aten::_pdist_forward").repeated(f32, {k, 3}).real(2).repeated(f32, {k / 2 * (k - 1)});
  call("aten::_pdist_forward").repeated(f32, {k, 0}).real(2).repeated(f32, {k / 2 * (k - 1)});
  call("aten::linalg_lu_factor_ex")
      .repeated(f32, {k, k})
      .number(1)
      .number(0)
      .repeated(f32, {k, k})
      .repeated(i32, {k})
      .repeated(i32, {});
  for (const char* name : {"aten::mm.out", "aten::mm"}) {
    for (int dtype : {f32, f64, int{HUSK_BF16}, i64, c64}) {
      call(name).repeated(dtype, {k, k}).repeated(dtype, {k, k}).repeated(dtype, {k, k});
      call(name).repeated(dtype, {1, k}).repeated(dtype, {k, n}).repeated(dtype, {1, n});
      call(name).repeated(dtype, {3, n}).repeated(dtype, {n, 2}).repeated(dtype, {3, 2});
      call(name).repeated(dtype, {90, n}).repeated(dtype, {n, 90}).repeated(dtype, {90, 90});
    }
  }
  call("aten::bmm").repeated(f32, {n, 1, 1}).repeated(f32, {n, 1, 1}).repeated(f32, {n, 1, 1});
  call("aten::addbmm")
      .repeated(f32, {2, 2})
      .repeated(f32, {n, 2, 2})
      .repeated(f32, {n, 2, 2})
      .number(1)
      .number(1)
      .repeated(f32, {2, 2});
  call("aten::_int_mm").repeated(i8, {k, 4}).repeated(i8, {4, k}).repeated(i32, {k, k});
  call("aten::_int_mm").repeated(i8, {3, n}).repeated(i8, {n, 5}).repeated(i32, {3, 5});
  call("aten::_trilinear")
      .repeated(f32, {n, 6})
      .repeated(f32, {3, 6, 5})
      .repeated(f32, {n, 5})
      .list({1, 3})
      .list({0})
      .list({1, 2})
      .list({2, 3})
      .number(1)
      .repeated(f32, {n, 3});
  // movement
  call("aten::clone").repeated(f32, {n}).none().repeated(f32, {n});
  call("aten::copy_").repeated(f32, {k, k}).repeated(i64, {k, 1}).none();
  call("aten::full").list({n}).number(2).none(4).repeated(f32, {n});
  call("aten::cat")
      .repeated(f32, {3, n})
      .repeated(f32, {3, 2})
      .as_list(2)
      .number(1)
      .repeated(f32, {3, n + 2});
  call("aten::constant_pad_nd").repeated(f32, {3}).list({1, n - 4}).real(2).repeated(f32, {n});
  call("aten::view").repeated(f32, {k, k}).list({n}).repeated(f32, {n});
  // nn
  call("aten::_scaled_dot_product_flash_attention_for_cpu")
      .repeated(f32, {1, 1, n, 8})
      .repeated(f32, {1, 1, 6, 8})
      .repeated(f32, {1, 1, 6, 8})
      .real(0)
      .number(1)
      .none(2)
      .repeated(f32, {1, 1, n, 8})
      .repeated(f32, {1, 1, n});
  call("aten::_scaled_dot_product_flash_attention_for_cpu")
      .repeated(f32, {1, 1, 3, 8})
      .repeated(f32, {1, 1, n, 8})
      .repeated(f32, {1, 1, n, 8})
      .real(0)
      .number(0)
      .none(2)
      .repeated(f32, {1, 1, 3, 8})
      .repeated(f32, {1, 1, 3});
  const auto convolution = [&](int64_t images, int64_t in, int64_t out, int64_t groups,
                               int64_t width) {
    call("aten::convolution")
        .repeated(f32, {images, in, width})
        .repeated(f32, {out, in / groups, 3})
        .none()
        .list({1})
        .list({1})
        .list({1})
        .number(0)
        .list({0})
        .number(groups)
        .repeated(f32, {images, out, width});
  };
  convolution(n, 4, 4, 1, 6);
  convolution(1, n, 4, 1, 6);
  convolution(1, 4, n, 1, 6);
  convolution(1, n, n, n, 6);
  convolution(1, 0, n, 1, 6);
  convolution(1, 4, 4, 1, n);
  call("aten::_embedding_bag")
      .repeated(f32, {5, 3})
      .repeated(i64, {n})
      .repeated(i64, {1}, 0)
      .number(0)
      .number(2)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .repeated(f32, {1, 3})
      .none(3);
  call("aten::_embedding_bag")
      .repeated(f32, {5, 3})
      .repeated(i64, {0})
      .repeated(i64, {n}, 0)
      .number(0)
      .number(1)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .repeated(f32, {n, 3})
      .none(3);
  call("aten::_embedding_bag")
      .repeated(f32, {5, n})
      .repeated(i64, {1})
      .repeated(i64, {1}, 0)
      .number(0)
      .number(0)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .repeated(f32, {1, n})
      .none(3);
  call("aten::embedding_renorm")
      .repeated(f32, {5, 3})
      .repeated(i64, {n})
      .real(1)
      .real(2)
      .repeated(f32, {5, 3});
  call("aten::_adaptive_avg_pool3d")
      .repeated(f32, {n, 3, 4, 5})
      .list({2, 3, 2})
      .repeated(f32, {n, 2, 3, 2});
  call("aten::_adaptive_avg_pool2d").repeated(f32, {2, k, k}).list({1, 1}).repeated(f32, {2, 1, 1});
  call("aten::adaptive_max_pool2d")
      .repeated(f32, {2, 4, 5})
      .list({k, k})
      .repeated(f32, {2, k, k})
      .repeated(i64, {2, k, k});
  call("aten::grid_sampler_2d")
      .repeated(f32, {1, 2, 3, 4})
      .repeated(f32, {1, k, k, 2})
      .number(0)
      .number(1)
      .number(1)
      .repeated(f32, {1, 2, k, k});
  call("aten::grid_sampler_2d")
      .repeated(f32, {1, n, 3, 4})
      .repeated(f32, {1, 2, 3, 2})
      .number(0)
      .number(1)
      .number(1)
      .repeated(f32, {1, n, 2, 3});
  call("aten::_upsample_bilinear2d_aa")
      .repeated(f32, {n, 2, 5, 6})
      .list({3, 9})
      .number(1)
      .none(2)
      .repeated(f32, {n, 2, 3, 9});
  call("aten::_upsample_bicubic2d_aa")
      .repeated(f32, {1, 2, k, k})
      .list({1, 2})
      .number(0)
      .none(2)
      .repeated(f32, {1, 2, 1, 2});
  call("aten::_upsample_bicubic2d_aa")
      .repeated(f32, {1, 2, 5, n})
      .list({5, 1})
      .number(0)
      .none(2)
      .repeated(f32, {1, 2, 5, 1});
  const auto rnn = [&](int64_t steps, int64_t sequences, int64_t width) {
    call("aten::mkldnn_rnn_layer")
        .repeated(f32, {steps, sequences, width})
        .repeated(f32, {20, width})
        .repeated(f32, {20, 5})
        .none(2)
        .repeated(f32, {1, sequences, 5})
        .repeated(f32, {1, sequences, 5})
        .number(1)
        .list({})
        .number(2)
        .number(5)
        .number(1)
        .number(0)
        .number(0)
        .number(0)
        .number(0)
        .repeated(f32, {steps, sequences, 5})
        .repeated(f32, {1, sequences, 5})
        .repeated(f32, {1, sequences, 5});
  };
  for (const auto& [steps, sequences] : {std::pair{n, int64_t{2}}, std::pair{int64_t{3}, n}})
    call("husk::recurrent_layer")
        .text("gru")
        .repeated(f32, {steps, sequences, 15})
        .repeated(f32, {sequences, 5})
        .none()
        .repeated(f32, {15, 5})
        .none()
        .number(0)
        .repeated(f32, {steps + 1, sequences, 5});
  rnn(n, 2, 4);
  rnn(3, n, 4);
  rnn(3, 2, n);
  // random
  const auto random = [&](Call& drawn) { drawn.i64(generator_state()); };
  random(call("aten::bernoulli.p").repeated(f32, {n}).real(0.5).none().repeated(f32, {n}));
  random(call("aten::bernoulli").repeated(f32, {n}).none().repeated(f32, {n}));
  random(call("aten::native_dropout")
             .repeated(f32, {n})
             .real(0.5)
             .number(1)
             .repeated(f32, {n})
             .repeated(mask, {n}));
  random(call("aten::exponential").repeated(f32, {n}).real(2).none().repeated(f32, {n}));
  random(call("aten::poisson").repeated(f32, {n}).none().repeated(f32, {n}));
  for (const bool replacement : {false, true}) {
    for (int dtype : {f32, f64}) {
      random(call("aten::multinomial")
                 .repeated(dtype, {int64_t{1} << 32})
                 .number(9)
                 .number(replacement)
                 .none()
                 .repeated(i64, {9}));
    }
  }
  random(call("aten::multinomial")
             .repeated(f32, {k, 5})
             .number(k)
             .number(1)
             .none()
             .repeated(i64, {k, k}));
  random(call("aten::randperm").number(n).none(4).repeated(i64, {n}));
  random(call("aten::rand").list({n}).none(4).repeated(f32, {n}));
  random(call("aten::randn").list({n}).none(4).repeated(f32, {n}));
  random(call("aten::randint").number(9).list({n}).none(4).repeated(i64, {n}));
  // reduce
  call("aten::kthvalue")
      .repeated(f32, {n})
      .number(2)
      .number(0)
      .number(0)
      .repeated(f32, {})
      .repeated(i64, {});
  for (const char* name : {"aten::median", "aten::nanmedian"})
    call(name).repeated(f32, {n}).repeated(f32, {});
  call("aten::median.dim")
      .repeated(f32, {3, n})
      .number(1)
      .number(0)
      .repeated(f32, {3})
      .repeated(i64, {3});
  call("aten::mode").repeated(f32, {n}).number(0).number(0).repeated(f32, {}).repeated(i64, {});
  call("aten::mode")
      .repeated(f32, {k, k / 16})
      .number(1)
      .number(0)
      .repeated(f32, {k})
      .repeated(i64, {k});
  call("aten::sum").repeated(f32, {n}).none().repeated(f32, {});
  call("aten::var.correction")
      .repeated(f32, {k, k})
      .list({1})
      .number(1)
      .number(0)
      .repeated(f32, {k});
  call("aten::cumsum").repeated(f32, {n}).number(0).none().repeated(f32, {n});
  call("aten::cumsum").repeated(i64, {k, k}).number(0).none().repeated(f32, {k, k});
  call("aten::cummax").repeated(f32, {n}).number(0).repeated(f32, {n}).repeated(i64, {n});
  call("aten::logcumsumexp").repeated(f32, {n}).number(0).repeated(f32, {n});
  call("aten::segment_reduce")
      .repeated(f32, {n})
      .text("sum")
      .repeated(i64, {1}, n)
      .none(2)
      .number(0)
      .number(0)
      .none()
      .repeated(f32, {1});
  call("aten::segment_reduce")
      .repeated(f32, {5})
      .text("sum")
      .repeated(i64, {n}, 0)
      .none(2)
      .number(0)
      .number(0)
      .none()
      .repeated(f32, {n});
  call("aten::index_reduce")
      .repeated(f32, {5})
      .number(0)
      .repeated(i64, {n})
      .repeated(f32, {n})
      .text("mean")
      .number(0)
      .repeated(f32, {5});
  for (int dtype : {f32, f64}) {
    call("aten::topk")
        .repeated(dtype, {n / 8})
        .number(3)
        .number(0)
        .number(1)
        .number(1)
        .tensor(dtype, {3})
        .i64({3});
  }
  call("aten::sort")
      .repeated(f32, {n, 1})
      .number(1)
      .number(0)
      .repeated(f32, {n, 1})
      .repeated(i64, {n, 1});
  call("aten::_unique2")
      .repeated(i64, {n})
      .number(1)
      .number(0)
      .number(1)
      .i64({1})
      .i64({0})
      .i64({1});
  call("aten::_unique2:sizes").repeated(i64, {n}).number(1).number(0).number(0).result();
  call("aten::unique_consecutive:sizes").repeated(f32, {n}).number(0).number(0).none().result();
  call("aten::unique_consecutive")
      .repeated(f32, {n})
      .number(1)
      .number(1)
      .none()
      .f32({1})
      .repeated(i64, {n})
      .i64({1});
  call("aten::unique_dim:sizes")
      .repeated(f32, {9, n})
      .number(0)
      .number(1)
      .number(0)
      .number(0)
      .result();
  // spectral
  call("aten::_fft_c2c").repeated(c64, {n, 6}).list({1}).number(1).number(0).repeated(c64, {n, 6});
  call("aten::_fft_c2c").repeated(c64, {n}).list({0}).number(1).number(0).repeated(c64, {n});
  call("aten::_fft_r2c")
      .repeated(f32, {n, 6143})
      .list({1})
      .number(0)
      .number(1)
      .repeated(c64, {n, 3072})
      .tensor(f64, {110590});
  call("aten::_fft_c2r").repeated(c64, {n, 4}).list({1}).number(2).number(7).repeated(f32, {n, 7});
  call("aten::hann_window").number(n).none(4).repeated(f32, {n});
}

namespace {

// Adds matrices of 90 rows that have an inverse and a Cholesky factor.
Call& matrices(Call& op_call, int64_t count = 9) {
  op_call.tensor(HUSK_F32, {count, 90, 90}, 1);
  auto* elements = static_cast<float*>(op_call.args.back().data);
  for (int64_t i = 0; i < count * 90; ++i) elements[i * 90 + i % 90] = 2;
  return op_call;
}

}  // namespace

void add_long_calls(std::deque<Call>& calls) {
  constexpr int64_t n = kLong, k = 1 << 9;
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  const auto f32 = int{HUSK_F32}, f64 = int{HUSK_F64}, i32 = int{HUSK_I32}, c64 = int{HUSK_C64};
  call("aten::addcmul").repeated(f32, {n}).repeated(f32, {n}).repeated(f32, {n}).number(1).f32({n});
  call("aten::index.Tensor").f32({n}).mask({n}).as_list(1).f32({n / 2});
  call("aten::index_put")
      .f32({k, k})
      .i64({k}, 0, 7, k)
      .as_list(1)
      .f32({k, k})
      .number(1)
      .f32({k, k});
  call("aten::scatter_add").f32({n}).number(0).i64({n}, 0, 7, n).f32({n}).f32({n});
  call("aten::scatter_reduce_.two")
      .f32({k, k})
      .number(1)
      .i64({k, k}, 0, 7, k)
      .f32({k, k})
      .text("mean")
      .number(0);
  call("aten::gather").f32({n}).number(0).i64({n}, 0, 7, n).number(0).f32({n});
  call("aten::searchsorted.Tensor")
      .f32({k})
      .f32({n})
      .number(0)
      .number(1)
      .none()
      .i64({k}, 0, 7, k)
      .i64({n});
  call("aten::bincount").i64({n}, 0, 7, n).f32({n}).number(2).f32({n});
  call("aten::histc").f32({n}).number(5).number(0).number(0).f32({5});
  call("aten::nonzero").mask({n}).i64({n / 2, 1});
  call("aten::masked_select").f32({n}).mask({n}).f32({n / 2});
  call("aten::masked_scatter").f32({n}).mask({n}).f32({n / 2}).f32({n});
  call("aten::repeat_interleave.Tensor").i64({n}, 0, 1, 3).none().i64({n - 1});
  matrices(call("aten::linalg_inv_ex")).number(0).f32({9, 90, 90}).tensor(i32, {9});
  matrices(call("aten::_linalg_solve_ex"))
      .f32({9, 90, 90})
      .number(1)
      .number(0)
      .f32({9, 90, 90})
      .f32({9, 90, 90})
      .tensor(i32, {9, 90})
      .tensor(i32, {9});
  matrices(call("aten::_linalg_slogdet")).f32({9}).f32({9}).f32({9, 90, 90}).tensor(i32, {9, 90});
  matrices(call("aten::linalg_cholesky_ex")).number(0).number(0).f32({9, 90, 90}).tensor(i32, {9});
  matrices(call("aten::linalg_solve_triangular"))
      .f32({9, 90, 90})
      .number(1)
      .number(0)
      .number(0)
      .f32({9, 90, 90});
  matrices(call("aten::_linalg_svd"))
      .number(1)
      .number(1)
      .none()
      .f32({9, 90, 90})
      .f32({9, 90})
      .f32({9, 90, 90})
      .tensor(f64, {16740});
  matrices(call("aten::_linalg_eigh"))
      .text("L")
      .number(1)
      .f32({9, 90})
      .f32({9, 90, 90})
      .tensor(f64, {8460});
  for (int dtype : {f32, c64}) {
    call("aten::linalg_eig")
        .tensor(dtype, {9, 90, 90}, 1)
        .tensor(c64, {9, 90})
        .tensor(c64, {9, 90, 90})
        .tensor(f64, {33660});
    call("aten::_linalg_eigvals")
        .tensor(dtype, {9, 90, 90}, 1)
        .tensor(c64, {9, 90})
        .tensor(f64, {33660});
  }
  matrices(call("aten::geqrf")).f32({9, 90, 90}).f32({9, 90}).tensor(f64, {8190});
  matrices(call("aten::linalg_qr"))
      .text("reduced")
      .f32({9, 90, 90})
      .f32({9, 90, 90})
      .tensor(f64, {8190});
  matrices(call("aten::linalg_householder_product"))
      .f32({9, 90})
      .f32({9, 90, 90})
      .tensor(f64, {8190});
  matrices(call("aten::ormqr"))
      .f32({9, 90})
      .f32({9, 90, 90})
      .number(1)
      .number(1)
      .f32({9, 90, 90})
      .tensor(f64, {16290});
  matrices(call("aten::linalg_ldl_factor_ex"))
      .number(0)
      .number(0)
      .f32({9, 90, 90})
      .tensor(i32, {9, 90})
      .tensor(i32, {9})
      .tensor(f64, {8100});
  matrices(call("aten::linalg_ldl_solve"))
      .tensor(i32, {9, 90}, 90)
      .f32({9, 90, 90})
      .number(0)
      .f32({9, 90, 90})
      .tensor(f64, {16200});
  matrices(call("aten::linalg_matrix_exp"), 2).f32({2, 90, 90}).tensor(f64, {24300});
  matrices(call("aten::linalg_lu"))
      .number(1)
      .f32({9, 90, 90})
      .f32({9, 90, 90})
      .f32({9, 90, 90})
      .tensor(f64, {90});
  matrices(call("aten::lu_unpack"))
      .tensor(i32, {9, 90}, 90)
      .number(1)
      .number(1)
      .f32({9, 90, 90})
      .f32({9, 90, 90})
      .f32({9, 90, 90});
  matrices(call("aten::linalg_lu_solve"))
      .tensor(i32, {9, 90}, 90)
      .f32({9, 90, 90})
      .number(1)
      .number(0)
      .f32({9, 90, 90});
  matrices(call("aten::triangular_solve"))
      .f32({9, 90, 90})
      .number(1)
      .number(1)
      .number(0)
      .f32({9, 90, 90})
      .f32({9, 90, 90});
  matrices(call("aten::cholesky_inverse")).number(0).f32({9, 90, 90});
  matrices(call("aten::cholesky_solve")).f32({9, 90, 90}).number(0).f32({9, 90, 90});
  call("aten::_embedding_bag")
      .f32({k, 3})
      .i64({n}, 0, 7, k)
      .i64({2}, 0, 3, 6)
      .number(0)
      .number(2)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .f32({2, 3})
      .i64({n})
      .i64({2})
      .i64({2, 3});
  call("aten::embedding_renorm").f32({k, k}).i64({k}, 0, 7, k).real(1).real(2).f32({k, k});
  call("aten::constant_pad_nd").f32({n}).list({n, n}).real(2).f32({3 * n});
  call("aten::randn").list({n}).none(4).f32({n}).i64(generator_state());
  call("aten::multinomial").f32({n}).number(k).number(1).none().i64({k}).i64(generator_state());
  call("aten::multinomial")
      .repeated(f64, {n})
      .number(5000)
      .number(0)
      .none()
      .i64({5000})
      .i64(generator_state());
  call("aten::multinomial").f32({n}).number(k).number(0).none().i64({k}).i64(generator_state());
  call("aten::randperm").number(n).none(4).i64({n}).i64(generator_state());
  for (const char* name : {"aten::median.dim", "aten::mode"})
    call(name).f32({n}).number(0).number(0).f32({}).i64({});
  call("aten::mode").i64({n}, 0, 7, n / 16).number(0).number(0).i64({}).i64({});
  call("aten::median").f32({n}).f32({});
  call("aten::cumsum").f32({n}).number(0).none().i64({n});
  for (int64_t rows : {1, 8}) {
    call("aten::sort")
        .i64({rows, n / rows}, 0, 77777, n)
        .number(1)
        .number(1)
        .i64({rows, n / rows})
        .i64({rows, n / rows});
    call("aten::sort")
        .f32({rows, n / rows})
        .number(1)
        .number(0)
        .f32({rows, n / rows})
        .i64({rows, n / rows});
  }
  call("aten::topk")
      .i64({n}, 0, 77777, n)
      .number(k)
      .number(0)
      .number(1)
      .number(1)
      .i64({k})
      .i64({k});
  call("aten::topk").f32({n}).number(k).number(0).number(1).number(1).f32({k}).i64({k});
  call("aten::_unique2")
      .i64({n}, 0, 77777, 3 * k * 16)
      .number(1)
      .number(1)
      .number(1)
      .i64({3 * k * 16})
      .i64({n})
      .i64({3 * k * 16});
  call("aten::unique_consecutive").f32({n}).number(1).number(1).none().f32({n}).i64({n}).i64({n});
  call("aten::unique_dim")
      .i64({k, k}, 0, 1, k)
      .number(0)
      .number(1)
      .number(1)
      .number(1)
      .i64({1, k})
      .i64({k})
      .i64({1});
  call("aten::_fft_c2c")
      .tensor(c64, {k, k}, 1)
      .list({1, 0})
      .number(1)
      .number(0)
      .tensor(c64, {k, k});
  call("aten::_fft_c2c").tensor(c64, {n}, 1).list({0}).number(1).number(0).tensor(c64, {n});
  call("aten::_fft_c2c")  // a prime number of points
      .tensor(c64, {262147}, 1)
      .list({0})
      .number(1)
      .number(0)
      .tensor(c64, {262147})
      .tensor(f64, {2 * (262147 + 4 * 786432)});
  call("aten::_fft_c2r")
      .tensor(c64, {k, k}, 1)
      .list({0, 1})
      .number(1)
      .number(1023)
      .f32({k, 1023})
      .tensor(f64, {2 * (3 * 1023 + k * k)});
}

}  // namespace husk::host_test
