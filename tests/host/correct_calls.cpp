#include "correct_calls.h"

#include <husk/ops.h>

namespace husk::host_test {

static std::vector<int64_t> generator() { return {HUSK_HOST_GENERATOR_BYTES / 8}; }

// Calls of operators with a workspace, which has the length that they need, and of operators that
// take factors.
static void add_factorizations(std::deque<Call>& calls) {
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  constexpr int f32 = HUSK_F32, f64 = HUSK_F64, c64 = HUSK_C64, i32 = HUSK_I32;
  for (const bool vectors : {true, false}) {
    const std::vector<int64_t> left = vectors ? std::vector<int64_t>{2, 4, 4}
                                              : std::vector<int64_t>{0},
                               right = vectors ? std::vector<int64_t>{2, 3, 3}
                                               : std::vector<int64_t>{0};
    call("aten::_linalg_svd")
        .f32({2, 4, 3})
        .number(1)
        .number(vectors)
        .none()
        .f32(left)
        .f32({2, 3})
        .f32(right)
        .tensor(f64, {vectors ? 44 : 40});
  }
  call("aten::_linalg_svd")
      .tensor(c64, {3, 4}, 1)
      .number(0)
      .number(1)
      .none()
      .tensor(c64, {3, 3})
      .f32({3})
      .tensor(c64, {3, 4})
      .tensor(f64, {74});
  for (const int dtype : {f32, c64}) {
    const int64_t width = dtype == c64 ? 2 : 1;
    call("aten::_linalg_eigh")
        .tensor(dtype, {2, 3, 3}, 1)
        .text("L")
        .number(1)
        .f32({2, 3})
        .tensor(dtype, {2, 3, 3})
        .tensor(f64, {width * 15 + 6});
    call("aten::linalg_eig")
        .tensor(dtype, {2, 3, 3}, 1)
        .tensor(c64, {2, 3})
        .tensor(c64, {2, 3, 3})
        .tensor(f64, {width * 27 + 24});
    call("aten::_linalg_eigvals")
        .tensor(dtype, {2, 3, 3}, 1)
        .tensor(c64, {2, 3})
        .tensor(f64, {width * 27 + 24});
    call("aten::geqrf")
        .tensor(dtype, {2, 4, 3}, 1)
        .tensor(dtype, {2, 4, 3})
        .tensor(dtype, {2, 3})
        .tensor(f64, {width * 15});
    call("aten::linalg_qr")
        .tensor(dtype, {2, 4, 3}, 1)
        .text("complete")
        .tensor(dtype, {2, 4, 4})
        .tensor(dtype, {2, 4, 3})
        .tensor(f64, {width * 19});
    call("aten::linalg_householder_product")
        .tensor(dtype, {2, 4, 3}, 1)
        .tensor(dtype, {2, 3}, 1)
        .tensor(dtype, {2, 4, 3})
        .tensor(f64, {width * 15});
    for (const bool left : {true, false}) {
      const std::vector<int64_t> other = left ? std::vector<int64_t>{4, 2}
                                              : std::vector<int64_t>{2, 4};
      call("aten::ormqr")
          .tensor(dtype, {4, 3}, 1)
          .tensor(dtype, {3}, 1)
          .tensor(dtype, other, 1)
          .number(left)
          .number(1)
          .tensor(dtype, other)
          .tensor(f64, {width * 23});
    }
    call("aten::linalg_ldl_factor_ex")
        .tensor(dtype, {2, 3, 3}, 1)
        .number(1)
        .number(0)
        .tensor(dtype, {2, 3, 3})
        .tensor(i32, {2, 3})
        .tensor(i32, {2})
        .tensor(f64, {width * 9});
    call("aten::linalg_ldl_solve")
        .tensor(dtype, {2, 3, 3}, 1)
        .tensor(i32, {2, 3}, 3)
        .tensor(dtype, {2, 3, 2}, 1)
        .number(0)
        .tensor(dtype, {2, 3, 2})
        .tensor(f64, {width * 15});
    call("aten::linalg_matrix_exp")
        .tensor(dtype, {2, 3, 3}, 1)
        .tensor(dtype, {2, 3, 3})
        .tensor(f64, {width * 27});
    call("aten::linalg_lu")
        .tensor(dtype, {2, 3, 4}, 1)
        .number(1)
        .tensor(dtype, {2, 3, 3})
        .tensor(dtype, {2, 3, 3})
        .tensor(dtype, {2, 3, 4})
        .tensor(f64, {3});
    call("aten::lu_unpack")
        .tensor(dtype, {2, 4, 3}, 1)
        .tensor(i32, {2, 3}, 3)
        .number(1)
        .number(1)
        .tensor(dtype, {2, 4, 4})
        .tensor(dtype, {2, 4, 3})
        .tensor(dtype, {2, 3, 3});
    call("aten::linalg_lu_solve")
        .tensor(dtype, {3, 3}, 1)
        .tensor(i32, {3}, 3)
        .tensor(dtype, {2, 3, 2}, 1)
        .number(1)
        .number(1)
        .tensor(dtype, {2, 3, 2});
    for (const char* name : {"aten::triangular_solve", "aten::triangular_solve.X"}) {
      call(name)
          .tensor(dtype, {2, 3, 2}, 1)
          .tensor(dtype, {3, 3}, 1)
          .number(1)
          .number(1)
          .number(0)
          .tensor(dtype, {2, 3, 2})
          .tensor(dtype, {2, 3, 3});
    }
    call("aten::cholesky").tensor(dtype, {2, 1, 1}, 1).number(1).tensor(dtype, {2, 1, 1});
    call("aten::cholesky_inverse").tensor(dtype, {3, 3}, 1).number(0).tensor(dtype, {3, 3});
    call("aten::cholesky_solve")
        .tensor(dtype, {2, 3, 2}, 1)
        .tensor(dtype, {3, 3}, 1)
        .number(1)
        .tensor(dtype, {2, 3, 2});
  }
}

void add_correct_calls(std::deque<Call>& calls) {
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  call("aten::convolution")
      .f32({2, 4, 5, 6})
      .f32({6, 2, 3, 2})
      .f32({6})
      .list({2, 1})
      .list({1, 0})
      .list({1, 2})
      .number(0)
      .list({0, 0})
      .number(2)
      .f32({2, 6, 3, 4});
  call("aten::convolution")
      .f32({2, 4, 5})
      .f32({4, 3, 3})
      .none()
      .list({2})
      .list({1})
      .list({1})
      .number(1)
      .list({1})
      .number(1)
      .f32({2, 3, 10});
  call("aten::convolution")
      .f32({1, 3, 5, 5})
      .f32({3, 1, 3, 3})
      .none()
      .list({1, 1})
      .list({1, 1})
      .list({1, 1})
      .number(0)
      .list({0, 0})
      .number(3)
      .f32({1, 3, 5, 5});
  call("husk::convolution")
      .f32({2, 4, 5, 6})
      .f32({6, 2, 3, 2})
      .f32({6})
      .list({2, 1})
      .list({1, 0})
      .list({1, 2})
      .number(0)
      .list({0, 0})
      .number(2)
      .f32({6})
      .f32({2, 6, 3, 4})
      .text("silu")
      .f32({2, 6, 3, 4});
  call("husk::convolution")
      .f32({1, 20, 1, 2})
      .f32({5, 20, 1, 1})
      .none()
      .list({1, 1})
      .list({0, 0})
      .list({1, 1})
      .number(0)
      .list({0, 0})
      .number(1)
      .none(2)
      .text("hardswish")
      .f32({1, 5, 1, 2});
  call("husk::convolution_depthwise")
      .f32({2, 3, 6, 7})
      .f32({5, 3, 1, 2})
      .f32({5})
      .list({1, 1})
      .list({0, 1})
      .list({1, 1})
      .f32({5})
      .text("relu")
      .f32({5, 1, 3, 2})
      .f32({5})
      .list({2, 1})
      .list({1, 0})
      .list({1, 2})
      .f32({5})
      .text("silu")
      .f32({2, 5, 3, 6});
  for (const int64_t groups : {1, 20}) {
    call("husk::convolution_int8")
        .tensor(HUSK_U8, {2, 20, 5, 6}, 7)
        .channels_last()
        .tensor(HUSK_I8, {20, 20 / groups, 3, 2}, -9)
        .f32({20})
        .f32({20})
        .list({2, 1})
        .list({1, 0})
        .list({1, 2})
        .number(groups)
        .real(0.5)
        .number(3)
        .none(2)
        .tensor(HUSK_I8, {2, 20, 3, 4}, 5)
        .real(0.25)
        .number(-7)
        .text(groups == 1 ? "silu" : "relu6")
        .real(0.125)
        .number(100)
        .number(0)
        .number(255)
        .number(HUSK_U8)
        .tensor(HUSK_U8, {2, 20, 3, 4})
        .channels_last();
  }
  call("husk::convolution_int8")
      .tensor(HUSK_I8, {7, 9}, 7)
      .tensor(HUSK_I8, {5, 9}, -9)
      .f32({1})
      .none()
      .list({})
      .list({})
      .list({})
      .number(1)
      .real(1)
      .number(0)
      .f32({1})
      .i64({1}, 3)
      .none()
      .real(1)
      .number(0)
      .text("none")
      .real(1)
      .number(0)
      .number(0)
      .number(0)
      .number(HUSK_F32)
      .f32({7, 5});
  call("aten::_embedding_bag")
      .f32({5, 3})
      .i64({6}, 0, 1, 5)
      .i64({2}, 0, 3, 6)
      .number(0)
      .number(2)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .f32({2, 3})
      .i64({6})
      .i64({2})
      .i64({2, 3});
  call("aten::_embedding_bag_forward_only")
      .f32({5, 3})
      .i64({6}, 0, 1, 5)
      .i64({3}, 0, 3, 7)
      .number(0)
      .number(0)
      .number(0)
      .f32({6})
      .number(1)
      .number(2)
      .f32({2, 3})
      .i64({0})
      .i64({3})
      .i64({3});
  call("aten::_embedding_bag_forward_only")
      .f32({5, 3})
      .i64({6}, 0, 1, 5)
      .i64({2}, 0, 3, 6)
      .number(0)
      .number(1)
      .number(0)
      .none()
      .number(0)
      .number(-1)
      .f32({2, 3})
      .i64({6})
      .i64({2})
      .i64({2});
  call("aten::embedding_renorm").f32({5, 3}).i64({2, 2}, 0, 1, 5).real(1).real(2).f32({5, 3});
  call("aten::_scaled_dot_product_flash_attention_for_cpu")
      .f32({1, 4, 5, 3})
      .f32({1, 2, 6, 3})
      .f32({1, 2, 6, 4})
      .real(0)
      .number(1)
      .f32({5, 6})
      .none()
      .f32({1, 4, 5, 4})
      .f32({1, 4, 5});
  for (const int32_t codes : {HUSK_I8, HUSK_F8E4M3FN})
    call("husk::attention_codes")
        .f32({1, 4, 5, 3})
        .tensor(codes, {1, 2, 6, 3}, 1, 1, 7)
        .tensor(codes, {1, 2, 6, 4}, 2, 1, 5)
        .f32({1, 2, 6})
        .f32({1, 2, 6})
        .number(1)
        .f32({5, 6})
        .none()
        .f32({1, 4, 5, 4});
  call("husk::attention_pages")
      .f32({2, 4, 5, 3})
      .f32({4, 2, 6, 3})
      .f32({4, 2, 6, 4})
      .none(2)
      .i64({2, 3}, 0, 1, 4)
      .f32({5, 18})
      .none()
      .f32({2, 4, 5, 4});
  for (const char* kind : {"gru", "rnn_relu"}) {
    const int64_t row = kind[0] == 'g' ? 15 : 5;
    call("husk::recurrent_layer")
        .text(kind)
        .f32({3, 2, row})
        .f32({2, 5})
        .none()
        .f32({row, 5})
        .f32({row})
        .number(1)
        .f32({4, 2, 5});
  }
  call("aten::mkldnn_rnn_layer")
      .f32({3, 2, 4})
      .f32({20, 4})
      .f32({20, 5})
      .f32({20})
      .f32({20})
      .f32({1, 2, 5})
      .f32({1, 2, 5})
      .number(1)
      .list({})
      .number(2)
      .number(5)
      .number(1)
      .number(1)
      .number(0)
      .number(0)
      .number(0)
      .f32({3, 2, 5})
      .f32({1, 2, 5})
      .f32({1, 2, 5});
  call("aten::nonzero").mask({2, 3}).i64({3, 2});
  call("husk::unsuppressed").f32({5, 4}).real(0.5).mask({5});
  call("aten::nonzero_static").mask({2, 3}).number(4).number(-1).i64({4, 2});
  call("aten::masked_select").f32({2, 3}).mask({2, 3}).f32({3});
  call("aten::masked_scatter").f32({2, 3}).mask({2, 3}).f32({3}).f32({2, 3});
  call("aten::repeat_interleave.Tensor").i64({3}, 0, 1, 3).none().i64({3});
  call("aten::repeat_interleave.Tensor:sizes").i64({3}, 0, 1, 3).none().result();
  call("aten::index.Tensor").f32({3, 4, 2}).mask({3}).i64({1, 1}).as_list(2).f32({1, 1, 2});
  call("aten::index_put_")
      .f32({3, 4})
      .i64({2}, -3, 5, 6)
      .i64({3, 1}, 0, 1, 4)
      .as_list(2)
      .f32({3, 2})
      .number(1);
  call("aten::scatter_reduce_.two")
      .f32({3, 4})
      .number(-1)
      .i64({2, 6}, 0, 1, 4)
      .f32({2, 6})
      .text("mean")
      .number(0);
  call("aten::index_reduce")
      .f32({3, 4})
      .number(1)
      .i64({2}, 0, 1, 4)
      .f32({3, 2})
      .text("amax")
      .number(0)
      .f32({3, 4});
  call("aten::segment_reduce")
      .f32({5, 2})
      .text("mean")
      .i64({2}, 2, 1, 2)
      .none(2)
      .number(0)
      .number(0)
      .none()
      .f32({2, 2});
  call("aten::searchsorted.Tensor")
      .f32({3, 1})
      .f32({3, 4})
      .number(0)
      .number(1)
      .text("right")
      .i64({3, 1})
      .i64({3, 4});
  call("aten::bincount").i64({4}, 0, 1, 3).f32({4}).number(2).f32({3});
  call("aten::_unique2")
      .i64({2, 3}, 0, 1, 4)
      .number(1)
      .number(1)
      .number(1)
      .i64({4})
      .i64({2, 3})
      .i64({4});
  call("aten::_unique2")
      .i64({2, 3}, 0, 1, 4)
      .number(1)
      .number(1)
      .number(1)
      .i64({4})
      .i64({2, 3})
      .i64({4})
      .tensor(HUSK_F64, {12});
  call("aten::_unique2:sizes")
      .i64({6}, 0, 1, 4)
      .number(1)
      .number(0)
      .number(0)
      .result()
      .tensor(HUSK_F64, {12});
  call("aten::unique_dim")
      .i64({3, 2}, 0, 1, 4)
      .number(0)
      .number(1)
      .number(1)
      .number(1)
      .i64({2, 2})
      .i64({3})
      .i64({2});
  call("aten::unique_consecutive")
      .i64({4}, 0, 1, 2)
      .number(1)
      .number(1)
      .none()
      .i64({4})
      .i64({4})
      .i64({4});
  call("aten::sort.stable").f32({3, 5}).number(1).number(0).number(1).f32({3, 5}).i64({3, 5});
  call("aten::topk").f32({3, 5}).number(2).number(1).number(1).number(1).f32({3, 2}).i64({3, 2});
  call("aten::addbmm").f32({4, 5}).f32({2, 4, 3}).f32({2, 3, 5}).number(1).number(2).f32({4, 5});
  call("aten::_int_mm").tensor(HUSK_I8, {3, 4}).tensor(HUSK_I8, {4, 5}).tensor(HUSK_I32, {3, 5});
  call("aten::_int_mm.out")
      .tensor(HUSK_I8, {3, 4})
      .tensor(HUSK_I8, {4, 5})
      .tensor(HUSK_I32, {3, 5});
  call("aten::addbmm.out")
      .f32({4, 5})
      .f32({2, 4, 3})
      .f32({2, 3, 5})
      .number(1)
      .number(2)
      .f32({4, 5});
  call("aten::_adaptive_avg_pool3d").f32({2, 3, 4, 5}).list({2, 3, 2}).f32({2, 2, 3, 2});
  call("aten::diagonal").f32({3, 4}).number(1).number(0).number(1).f32({3});
  call("aten::searchsorted.Scalar").f32({4}).number(3).number(0).number(1).none(2).i64({});
  call("aten::linalg_lu_factor_ex")
      .f32({2, 3, 3})
      .number(1)
      .number(0)
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2, 3})
      .tensor(HUSK_I32, {2});
  call("aten::_linalg_det").f32({2, 3, 3}).f32({2}).f32({2, 3, 3}).tensor(HUSK_I32, {2, 3});
  call("aten::_linalg_slogdet")
      .f32({2, 3, 3})
      .f32({2})
      .f32({2})
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2, 3});
  call("aten::linalg_inv_ex").f32({2, 3, 3}).number(0).f32({2, 3, 3}).tensor(HUSK_I32, {2});
  call("aten::linalg_cholesky_ex")
      .f32({2, 3, 3})
      .number(0)
      .number(0)
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2});
  call("aten::bernoulli_.Tensor").f32({4}).tensor(HUSK_F32, {4}).none().i64(generator());
  call("aten::adaptive_avg_pool1d").f32({2, 3, 5}).list({2}).f32({2, 3, 2});
  call("aten::_adaptive_avg_pool2d").f32({2, 4, 5}).list({3, 2}).f32({2, 3, 2});
  call("aten::adaptive_max_pool2d").f32({2, 4, 5}).list({3, 2}).f32({2, 3, 2}).i64({2, 3, 2});
  call("aten::grid_sampler_2d")
      .f32({1, 2, 3, 4})
      .f32({1, 2, 3, 2})
      .number(0)
      .number(1)
      .number(1)
      .f32({1, 2, 2, 3});
  call("aten::grid_sampler_2d")
      .f32({1, 2, 3, 4})
      .f32({1, 2, 3, 2})
      .number(2)
      .number(2)
      .number(0)
      .f32({1, 2, 2, 3});
  call("aten::_upsample_bilinear2d_aa")
      .f32({1, 2, 5, 6})
      .list({3, 9})
      .number(1)
      .real(0.5)
      .real(2)
      .f32({1, 2, 3, 9});
  call("aten::unsqueeze").f32({3, 4}).number(-1).f32({3, 4, 1});
  call("husk::linear").f32({4, 3}).f32({5, 3}).f32({5}).f32({4, 5}).text("gelu").f32({4, 5});
  for (const int rows : {2, 20}) {
    call("husk::linear_quantized")
        .f32({rows, 6})
        .tensor(HUSK_U8, {5, 3}, 9)
        .f32({5, 2})
        .tensor(HUSK_I8, {5, 2}, 1)
        .f32({16})
        .f32({5})
        .f32({rows, 5})
        .text("gelu")
        .number(4)
        .number(3)
        .f32({rows, 5});
    for (const bool are_ends : {false, true}) {
      Call& grouped = call("husk::grouped_linear_quantized")
                          .f32({rows, 6})
                          .tensor(HUSK_U8, {3, 5, 3}, 9)
                          .f32({3, 5, 2})
                          .tensor(HUSK_I8, {3, 5, 2}, 1)
                          .f32({16});
      if (are_ends)
        grouped.tensor(HUSK_I32, {3}, 1).none();
      else
        grouped.none().i64({rows});
      grouped.number(4).number(3).f32({rows, 5});
    }
    call("husk::grouped_product")
        .f32({rows, 6})
        .f32({3, 6, 5})
        .tensor(HUSK_I32, {3}, 1)
        .f32({rows, 5});
    call("husk::linear_rounded")
        .f32({rows, 64})
        .tensor(HUSK_U8, {5, 32}, 9)
        .f32({5, 2})
        .none(3)
        .f32({rows, 5})
        .text("relu")
        .number(4)
        .number(32)
        .f32({rows, 5});
    call("husk::linear_quantized")
        .f32({rows, 8})
        .tensor(HUSK_F8E4M3FN, {5, 8}, 1)
        .f32({5, 1})
        .none(4)
        .text("none")
        .number(8)
        .number(8)
        .f32({rows, 5});
  }
  call("aten::_addmm_activation")
      .f32({5})
      .f32({4, 3})
      .f32({3, 5})
      .number(1)
      .number(2)
      .number(1)
      .f32({4, 5});
  call("aten::addmm").f32({5}).f32({4, 3}).f32({3, 5}).number(1).real(0.5).f32({4, 5});
  call("aten::addmm.out").f32({4, 5}).f32({4, 3}).f32({3, 5}).number(1).number(2).f32({4, 5});
  call("aten::mm").f32({4, 3}).f32({3, 5}).f32({4, 5});
  call("aten::mm.out").f32({1, 3}).f32({3, 5}).f32({1, 5});
  call("aten::bmm").f32({2, 4, 3}).f32({2, 3, 5}).f32({2, 4, 5});
  call("aten::bmm.out").f32({2, 4, 3}).f32({2, 3, 5}).f32({2, 4, 5});
  for (const char* name : {"aten::baddbmm", "aten::baddbmm.out"})
    call(name).f32({2, 4, 5}).f32({2, 4, 3}).f32({2, 3, 5}).number(1).number(2).f32({2, 4, 5});
  call("aten::_cdist_forward").f32({2, 3, 4}).f32({2, 5, 4}).real(2).none().f32({2, 3, 5});
  call("aten::linalg_solve_triangular")
      .f32({2, 3, 3})
      .f32({2, 3, 2})
      .number(1)
      .number(1)
      .number(0)
      .f32({2, 3, 2});
  call("aten::kthvalue").f32({3, 5}).number(2).number(1).number(0).f32({3}).i64({3});
  call("aten::mode").f32({3, 5}).number(1).number(1).f32({3, 1}).i64({3, 1});
  for (const char* name : {"aten::median.dim", "aten::nanmedian.dim"})
    call(name).f32({3, 5}).number(0).number(0).f32({5}).i64({5});
  for (const char* name : {"aten::index_put", "aten::_unsafe_index_put"}) {
    call(name)
        .f32({3, 4})
        .i64({2}, -3, 5, 6)
        .i64({3, 1}, 0, 1, 4)
        .as_list(2)
        .f32({3, 2})
        .number(0)
        .f32({3, 4});
  }
  call("aten::_unsafe_index_put_").f32({3, 4}).i64({2}, 0, 1, 3).as_list(1).f32({2, 4}).number(1);
  call("aten::_unsafe_index.Tensor").f32({3, 4}).i64({2}, 0, 1, 3).as_list(1).f32({2, 4});
  call("aten::bucketize.Tensor").f32({3, 4}).f32({5}).number(0).number(1).i64({3, 4});
  call("aten::bucketize.Scalar").number(3).f32({5}).number(1).number(0).tensor(HUSK_I32, {});
  call("aten::histc").f32({3, 4}).number(5).number(0).number(7).f32({5});
  call("aten::bincount:sizes").i64({4}, 0, 1, 3).none().number(2).result();
  call("aten::gather").f32({3, 4}).number(1).i64({3, 2}, 0, 1, 4).number(0).f32({3, 2});
  call("aten::scatter.src").f32({3, 4}).number(1).i64({3, 2}, 0, 1, 4).f32({3, 2}).f32({3, 4});
  call("aten::scatter.value").f32({3, 4}).number(0).i64({3, 2}, 0, 1, 3).real(2).f32({3, 4});
  call("aten::scatter_.src").f32({3, 4}).number(-1).i64({3, 2}, 0, 1, 4).f32({3, 2});
  call("aten::scatter_add").f32({3, 4}).number(1).i64({3, 2}, 0, 1, 4).f32({3, 2}).f32({3, 4});
  call("aten::scatter_add_").f32({3, 4}).number(1).i64({3, 2}, 0, 1, 4).f32({3, 2});
  call("aten::scatter_.reduce")
      .f32({3, 4})
      .number(1)
      .i64({3, 2}, 0, 1, 4)
      .f32({3, 2})
      .text("multiply");
  call("aten::scatter_.value_reduce")
      .f32({3, 4})
      .number(1)
      .i64({3, 2}, 0, 1, 4)
      .real(2)
      .text("add");
  call("aten::scatter_reduce.two")
      .f32({3, 4})
      .number(-1)
      .i64({2, 4}, 0, 1, 4)
      .f32({2, 4})
      .text("prod")
      .number(1)
      .f32({3, 4});
  call("aten::hann_window").number(6).none(4).f32({6});
  call("aten::hann_window.periodic").number(6).number(0).none(4).f32({6});
  call("aten::fake_quantize_per_tensor_affine_cachemask")
      .f32({3, 4})
      .real(0.5)
      .number(2)
      .number(0)
      .number(15)
      .f32({3, 4})
      .mask({3, 4});
  call("aten::cat").f32({3, 4}).f32({3, 2}).as_list(2).number(-1).f32({3, 6});
  call("aten::slice.Tensor").f32({3, 7}).number(1).number(-6).number(100).number(2).f32({3, 3});
  call("aten::diagonal").f32({3, 4}).number(-1).number(1).number(-2).f32({3});
  call("aten::constant_pad_nd").f32({3, 4}).list({1, -2, 0, 1}).real(2).f32({4, 3});
  call("aten::repeat").f32({3, 4}).list({2, 1, 3}).f32({2, 3, 12});
  call("aten::permute").f32({2, 3, 4}).list({2, 0, -2}).f32({4, 2, 3});
  call("aten::flip").f32({3, 4}).list({-1, 0}).f32({3, 4});
  call("aten::expand").f32({3, 1}).list({2, -1, 4}).number(0).f32({2, 3, 4});
  call("aten::view").f32({3, 4}).list({2, -1}).f32({2, 6});
  call("aten::squeeze.dims").f32({1, 3, 1}).list({0, -1}).f32({3});
  call("aten::var.correction").f32({3, 4}).list({-1}).number(1).number(1).f32({3, 1});
  call("aten::sum.dim_IntList").f32({3, 4}).list({0}).number(0).none().f32({4});
  call("aten::prod.dim_int").f32({3, 4}).number(0).number(0).none().f32({4});
  call("aten::native_dropout")
      .f32({3, 4})
      .real(0.5)
      .number(1)
      .f32({3, 4})
      .mask({3, 4})
      .i64(generator());
  call("aten::poisson").f32({3, 4}).none().f32({3, 4}).i64(generator());
  call("aten::exponential").f32({4}).real(2).none().f32({4}).i64(generator());
  call("aten::randint.low").number(-2).number(5).list({7}).none(4).i64({7}).i64(generator());
  call("aten::normal_functional").f32({4}).real(1).real(2).none().f32({4}).i64(generator());
  call("aten::uniform").f32({4}).real(-1).real(2).none().f32({4}).i64(generator());
  call("aten::select.int").f32({3, 4}).number(1).number(-4).f32({3});
  call("aten::view.dtype").f32({3, 4}).none().tensor(HUSK_C64, {3, 2});
  call("aten::adaptive_max_pool3d")
      .f32({2, 3, 4, 5})
      .list({2, 3, 2})
      .f32({2, 2, 3, 2})
      .i64({2, 2, 3, 2});
  call("aten::grid_sampler_3d")
      .f32({1, 2, 3, 4, 5})
      .f32({1, 2, 2, 2, 3})
      .number(0)
      .number(2)
      .number(0)
      .f32({1, 2, 2, 2, 2});
  call("aten::_upsample_bicubic2d_aa")
      .f32({1, 2, 5, 6})
      .list({3, 9})
      .number(0)
      .none(2)
      .f32({1, 2, 3, 9});
  call("aten::_trilinear")
      .f32({4, 6})
      .f32({3, 6, 5})
      .f32({4, 5})
      .list({1, 3})
      .list({0})
      .list({1, 2})
      .list({2, 3})
      .number(1)
      .f32({4, 3});
  call("aten::_pdist_forward").f32({4, 3}).real(2).f32({6});
  call("aten::_fft_c2c")
      .tensor(HUSK_C64, {3, 6})
      .list({1, 0})
      .number(1)
      .number(0)
      .tensor(HUSK_C64, {3, 6});
  call("aten::_fft_r2c").f32({3, 6}).list({0, 1}).number(0).number(1).tensor(HUSK_C64, {3, 4});
  call("aten::_fft_c2r").tensor(HUSK_C64, {3, 4}).list({1}).number(2).number(7).f32({3, 7});
  call("aten::_fft_c2c")  // 67 is no product of small factors
      .tensor(HUSK_C64, {2, 67})
      .list({0, 1})
      .number(1)
      .number(0)
      .tensor(HUSK_C64, {2, 67})
      .tensor(HUSK_F64, {1670});
  call("aten::_fft_r2c")
      .f32({2, 1026})
      .list({1})
      .number(2)
      .number(0)
      .tensor(HUSK_C64, {2, 1026})
      .tensor(HUSK_F64, {6156});
  call("aten::_fft_c2r")
      .tensor(HUSK_C64, {3, 4})
      .list({0, 1})
      .number(2)
      .number(7)
      .f32({3, 7})
      .tensor(HUSK_F64, {66});
  call("aten::_linalg_solve_ex")
      .f32({2, 3, 3})
      .f32({2, 3, 2})
      .number(1)
      .number(0)
      .f32({2, 3, 2})
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2, 3})
      .tensor(HUSK_I32, {2});
  add_factorizations(calls);
  call("aten::histogram.bin_ct").f32({9}).number(3).none(2).number(1).f32({3}).f32({4});
  call("aten::histogram.bins_tensor")
      .f32({9})
      .tensor(HUSK_F32, {4}, 0, 2, 20)
      .f32({9})
      .number(0)
      .f32({3})
      .f32({4});
  call("aten::_histogramdd_from_bin_cts")
      .f32({4, 2})
      .list({3, 2})
      .none()
      .f32({4})
      .number(1)
      .f32({3, 2});
  call("aten::_histogramdd_from_bin_tensors")
      .f32({4, 2})
      .tensor(HUSK_F32, {4}, 0, 2, 20)
      .tensor(HUSK_F32, {3}, 0, 4, 20)
      .as_list(2)
      .none()
      .number(0)
      .f32({3, 2});
  call("aten::multinomial").f32({2, 5}).number(3).number(0).none().i64({2, 3}).i64(generator());
  call("aten::randperm").number(7).none(4).i64({7}).i64(generator());
  call("aten::bernoulli.Tensor").f32({4}).tensor(HUSK_F32, {4}).none().f32({4}).i64(generator());
}

// A convolution of aten with one size, stride, padding and dilation along all `dims`.
struct Shape {
  int dims;
  int64_t batch, in, out, size, taps, stride, padding, dilation, groups;
  bool transposed, channels_last;
};

static void add_convolution(std::deque<Call>& calls, const Shape& s) {
  const auto sizes = [&](int64_t first, int64_t second, int64_t along) {
    std::vector<int64_t> all(static_cast<size_t>(s.dims), along);
    all.insert(all.begin(), {first, second});
    return all;
  };
  const auto each_dim = [&](int64_t value) {
    return std::vector<int64_t>(static_cast<size_t>(s.dims), value);
  };
  const int64_t span = s.dilation * (s.taps - 1);
  const int64_t size = s.transposed ? (s.size - 1) * s.stride - 2 * s.padding + span + 1
                                    : (s.size + 2 * s.padding - span - 1) / s.stride + 1;
  Call& call = calls.emplace_back("aten::convolution");
  call.f32(sizes(s.batch, s.in, s.size));
  if (s.channels_last) call.channels_last();
  call.f32(s.transposed ? sizes(s.in, s.out / s.groups, s.taps)
                        : sizes(s.out, s.in / s.groups, s.taps));
  call.f32({s.out})
      .list(each_dim(s.stride))
      .list(each_dim(s.padding))
      .list(each_dim(s.dilation))
      .number(s.transposed)
      .list(each_dim(0))
      .number(s.groups)
      .f32(sizes(s.batch, s.out, size));
  if (s.channels_last) call.channels_last();
}

void add_large_calls(std::deque<Call>& calls) {
  const auto call = [&](const char* name) -> Call& { return calls.emplace_back(name); };
  // A convolution of an image [1, in, size, size] with as many positions in the output.
  const auto convolve = [&](int64_t in, int64_t out, int64_t size, int64_t taps, int64_t groups,
                            const char* activation) {
    const int64_t padding = taps / 2;
    call("husk::convolution")
        .f32({1, in, size, size})
        .channels_last()
        .f32({out, in / groups, taps, taps})
        .f32({out})
        .list({1, 1})
        .list({padding, padding})
        .list({1, 1})
        .number(0)
        .list({0, 0})
        .number(groups)
        .f32({out})
        .f32({1, out, size, size})
        .channels_last()
        .text(activation)
        .f32({1, out, size, size})
        .channels_last();
  };
  convolve(20, 36, 8, 3, 1, "gelu");        // Winograd's method
  convolve(16, 70, 7, 3, 1, "relu6");       // the same, and more channels than a block
  convolve(66, 66, 7, 3, 66, "hardswish");  // depthwise
  convolve(16, 16, 6, 5, 16, "tanh");
  convolve(8, 70, 6, 5, 1, "sigmoid");
  convolve(40, 48, 5, 1, 1, "gelu_tanh");
  convolve(12, 24, 5, 3, 2, "hardsigmoid");
  // A convolution and a depthwise one, of images [2, in, size, size].
  const auto convolve_both = [&](int64_t in, int64_t out, int64_t size, int64_t taps,
                                 int64_t stride, const char* activation) {
    call("husk::convolution_depthwise")
        .f32({2, in, size, size})
        .channels_last()
        .f32({out, in, 1, 1})
        .f32({out})
        .list({1, 1})
        .list({0, 0})
        .list({1, 1})
        .f32({out})
        .text(activation)
        .f32({out, 1, taps, taps})
        .f32({out})
        .list({stride, stride})
        .list({taps / 2, taps / 2})
        .list({1, 1})
        .f32({out})
        .text(activation)
        .f32({2, out, (size - 1) / stride + 1, (size - 1) / stride + 1})
        .channels_last();
  };
  convolve_both(8, 40, 13, 3, 1, "hardswish");
  convolve_both(16, 70, 14, 5, 2, "relu");
  call("aten::convolution")  // the image of a first layer
      .f32({1, 3, 15, 15})
      .f32({32, 3, 3, 3})
      .none()
      .list({2, 2})
      .list({1, 1})
      .list({1, 1})
      .number(0)
      .list({0, 0})
      .number(1)
      .f32({1, 32, 8, 8})
      .channels_last();
  constexpr Shape kShapes[] = {
      // The general method: one to four vectors of channels, several chunks of channels and of
      // taps.
      {2, 1, 6, 16, 6, 3, 2, 1, 1, 1, false, true},
      {2, 1, 6, 24, 6, 3, 2, 1, 1, 1, false, true},
      {2, 2, 6, 47, 6, 2, 2, 0, 1, 1, false, true},
      {2, 1, 8, 64, 6, 3, 2, 1, 1, 1, false, true},
      {2, 1, 4, 75, 6, 2, 1, 1, 2, 1, false, true},
      {2, 1, 130, 20, 5, 3, 2, 1, 1, 1, false, true},
      {2, 1, 600, 20, 4, 1, 1, 0, 1, 1, false, true},
      {2, 1, 3, 12, 12, 9, 2, 4, 1, 1, false, true},
      {2, 1, 8, 12, 5, 3, 1, 1, 1, 2, false, false},
      {1, 2, 20, 40, 30, 5, 1, 2, 1, 1, false, false},
      {1, 1, 12, 36, 20, 3, 2, 0, 3, 4, false, false},
      {3, 1, 6, 20, 4, 3, 1, 1, 1, 1, false, false},
      {3, 1, 8, 8, 4, 2, 2, 0, 1, 8, false, false},
      {2, 1, 4, 8, 3, 3, 1, 5, 2, 1, false, true},
      // Transposed, with as many phases as the stride has, and with empty phases.
      {2, 1, 8, 20, 4, 3, 2, 1, 1, 1, true, true},
      {2, 2, 8, 12, 3, 2, 3, 0, 1, 2, true, true},
      {1, 1, 12, 20, 9, 5, 3, 2, 2, 1, true, false},
      {3, 1, 4, 8, 3, 2, 2, 0, 1, 1, true, false},
      // Dots: few positions.
      {2, 2, 70, 19, 2, 1, 1, 0, 1, 1, false, true},
      {2, 1, 40, 18, 3, 1, 2, 0, 1, 2, false, true},
      // Depthwise: one to four vectors, edges, strides and dilation.
      {2, 1, 12, 12, 7, 3, 1, 1, 1, 12, false, true},
      {2, 1, 20, 20, 7, 3, 2, 1, 1, 20, false, true},
      {2, 2, 40, 40, 5, 5, 1, 2, 1, 40, false, true},
      {2, 1, 52, 52, 6, 3, 1, 2, 2, 52, false, true},
      {2, 1, 90, 90, 5, 3, 1, 0, 1, 90, false, true},
      {3, 1, 8, 8, 4, 3, 1, 1, 1, 8, false, false},
      // Winograd's method: odd sizes, several images, groups, chunks of channels.
      {2, 2, 16, 20, 5, 3, 1, 0, 1, 1, false, true},
      {2, 1, 48, 32, 7, 3, 1, 1, 1, 2, false, true},
      {2, 1, 40, 100, 6, 3, 1, 2, 1, 1, false, true},
  };
  for (const Shape& shape : kShapes) add_convolution(calls, shape);
  // Attention with masks of each dtype, which are broadcast or have a stride.
  for (const int64_t rows : {2, 9, 30}) {
    for (const int kind : {0, 1, 2}) {
      Call& attention = call("aten::_scaled_dot_product_flash_attention_for_cpu");
      attention.f32({1, 4, rows, 20}).f32({1, 2, 140, 20}).f32({1, 2, 140, 12});
      attention.real(0).number(0);
      if (kind == 0) attention.mask({rows, 140});
      if (kind == 1) attention.f32({1, 1, 1, 140});
      if (kind == 2) attention.f32({140, rows, 4, 1}).transposed();
      attention.none().f32({1, 4, rows, 12}).f32({1, 4, rows});
    }
  }
  for (const int64_t rows : {2, 9}) {
    for (const int32_t half : {HUSK_F16, HUSK_BF16}) {
      call("aten::_scaled_dot_product_flash_attention_for_cpu")
          .f32({1, 4, rows, 20})
          .tensor(half, {1, 2, 140, 20}, 1)
          .tensor(half, {1, 2, 140, 12}, 2)
          .real(0)
          .number(0)
          .mask({rows, 140})
          .none()
          .f32({1, 4, rows, 12})
          .none();
    }
    for (const int32_t codes : {HUSK_I8, HUSK_F8E4M3FN}) {
      call("husk::attention_codes")
          .f32({1, 4, rows, 20})
          .tensor(codes, {1, 2, 140, 20}, 1)
          .tensor(codes, {1, 2, 140, 12}, 2)
          .f32({1, 2, 140})
          .f32({1, 2, 140})
          .number(0)
          .mask({rows, 140})
          .none()
          .f32({1, 4, rows, 12});
    }
  }
  for (const int64_t rows : {1, 9}) {
    call("husk::attention_pages")
        .f32({2, 4, rows, 20})
        .f32({5, 2, 70, 20})
        .f32({5, 2, 70, 12})
        .none(2)
        .i64({2, 2}, 1, 1, 5)
        .f32({rows, 140})
        .none()
        .f32({2, 4, rows, 12});
    call("husk::attention_pages")
        .f32({2, 4, rows, 20})
        .tensor(HUSK_I8, {5, 2, 70, 20}, 1)
        .tensor(HUSK_I8, {5, 2, 70, 12}, 2)
        .f32({5, 2, 70})
        .f32({5, 2, 70})
        .i64({2, 2}, 1, 1, 5)
        .none(2)
        .f32({2, 4, rows, 12});
  }
  for (const int64_t rows : {1, 3, 20})
    for (const bool causal : {false, true})
      call("aten::_scaled_dot_product_flash_attention_for_cpu")
          .f32({1, 2, rows, 16})
          .f32({1, 2, 70, 16})
          .f32({1, 2, 70, 24})
          .real(0)
          .number(causal)
          .none(2)
          .f32({1, 2, rows, 24})
          .f32({1, 2, rows});
  constexpr int64_t kMany = 9000;
  call("aten::sort.stable")
      .i64({kMany}, 0, 7, kMany)
      .number(1)
      .number(0)
      .number(1)
      .i64({kMany})
      .i64({kMany});
  call("aten::mode").i64({kMany}, 0, 7, kMany).number(0).number(0).i64({}).i64({});
  call("aten::mode").i64({2 * kMany}, 0, 7, 2 * kMany).number(0).number(0).i64({}).i64({});
  call("aten::mode").i64({2 * kMany}, 0, 7, 8192).number(0).number(0).i64({}).i64({});
  call("aten::scatter_reduce_.two")
      .f32({kMany})
      .number(0)
      .i64({50}, 0, 171, kMany)
      .f32({50})
      .text("mean")
      .number(0);
  call("aten::_unique2:sizes").i64({kMany}, 0, 7, kMany).number(1).number(0).number(0).result();
  call("aten::_unique2:sizes")
      .i64({kMany}, 0, 7, kMany)
      .number(1)
      .number(0)
      .number(0)
      .result()
      .tensor(HUSK_F64, {2 * kMany});
  call("aten::_unique2")
      .i64({kMany}, 0, 7, kMany)
      .number(1)
      .number(1)
      .number(1)
      .i64({kMany})
      .i64({kMany})
      .i64({kMany});
  call("aten::_fft_c2c")
      .tensor(HUSK_C64, {8192})
      .list({0})
      .number(1)
      .number(1)
      .tensor(HUSK_C64, {8192});
  call("aten::scatter_add_").f32({5}).number(0).i64({kMany}, 0, 1, 5).f32({kMany});
  call("aten::_linalg_solve_ex")  // x a = b
      .f32({2, 3, 3})
      .f32({2, 4, 3})
      .number(0)
      .number(0)
      .f32({2, 4, 3})
      .f32({2, 3, 3})
      .tensor(HUSK_I32, {2, 3})
      .tensor(HUSK_I32, {2});
  call("aten::segment_reduce")  // by offsets
      .f32({3, 5, 2})
      .text("max")
      .none(2)
      .i64({3, 3}, 0, 2, 6)
      .number(1)
      .number(0)
      .none()
      .f32({3, 2, 2});
  for (const double real : {1.0, -1.0, 0.5})
    for (const char* name : {"aten::add.Tensor", "aten::sub.Tensor"})
      call(name).tensor(HUSK_C64, {5}).tensor(HUSK_C64, {5}).complex(real, 2).tensor(HUSK_C64, {5});
}

}  // namespace husk::host_test
