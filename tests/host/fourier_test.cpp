// Fourier transforms with the kernels of each instruction set, against the definition in f64.
#include <cmath>
#include <complex>
#include <random>

#include "cpu_sets.h"
#include "host_device.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

using Numbers = std::vector<std::complex<double>>;

Numbers transformed(const Numbers& in, bool forward) {
  const auto n = static_cast<int64_t>(in.size());
  const double turn = (forward ? -2 : 2) * 3.14159265358979323846 / static_cast<double>(n);
  Numbers out(in.size());
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < n; ++j)
      out[k] += in[j] * std::polar(1.0, turn * static_cast<double>(k * j % n));
  return out;
}

class Fourier : public HostDevice {
 protected:
  void expect_close(const Numbers& found, const Numbers& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k)
      EXPECT_LT(std::abs(found[k] - expected[k]), 1e-11) << k;
  }
  husk_op_arg dims() {
    static int64_t zero = 0;
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    a.count = 1;
    a.sizes = &zero;
    return a;
  }
};

TEST_F(Fourier, LengthsWithEachInstructionSet) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<int64_t> lengths = {64, 67, 72, 96, 100, 120, 134, 200, 201, 256};
  for (int64_t n = 1; n <= 40; ++n) lengths.push_back(n);
  for (const CpuSet& set : sets()) {
    use(set);
    SCOPED_TRACE(set.name);
    for (const int64_t n : lengths) {
      SCOPED_TRACE(n);
      const int64_t half = n / 2 + 1, workspace_size = 40 * n + 64;
      std::vector<double> work(workspace_size), reals(n), back(n);
      const husk_op_arg workspace = vector_arg(HUSK_F64, workspace_size, work.data());
      Numbers points(n), out(n), real_points(n), spectrum(half);
      for (auto& point : points) point = {normal(random), normal(random)};
      for (int64_t i = 0; i < n; ++i) real_points[i] = reals[i] = normal(random);
      for (const bool forward : {true, false}) {
        ASSERT_EQ(call("aten::_fft_c2c",
                       {vector_arg(HUSK_C128, n, points.data()), dims(), int_arg(0),
                        int_arg(forward), vector_arg(HUSK_C128, n, out.data()), workspace}),
                  HUSK_OK)
            << error.text;
        expect_close(out, transformed(points, forward));
      }
      Numbers expected = transformed(real_points, true);
      for (const bool is_half : {true, false}) {
        spectrum.resize(is_half ? half : n);
        const auto size = static_cast<int64_t>(spectrum.size());
        ASSERT_EQ(call("aten::_fft_r2c",
                       {vector_arg(HUSK_F64, n, reals.data()), dims(), int_arg(0), int_arg(is_half),
                        vector_arg(HUSK_C128, size, spectrum.data()), workspace}),
                  HUSK_OK)
            << error.text;
        expect_close(spectrum, {expected.begin(), expected.begin() + size});
      }
      ASSERT_EQ(
          call("aten::_fft_c2r", {vector_arg(HUSK_C128, half, spectrum.data()), dims(), int_arg(2),
                                  int_arg(n), vector_arg(HUSK_F64, n, back.data()), workspace}),
          HUSK_OK)
          << error.text;
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(back[i], reals[i], 1e-12) << i;
    }
  }
}

}  // namespace
}  // namespace husk::host_test
