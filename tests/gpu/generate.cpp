// Greedy tokens of a model with two functions over one KV cache: a prefill of the prompt, then one
// decode for each token. The inputs of a decode are the outputs of the previous call, on the
// device. The tokens are compared with those of eager PyTorch. The first token that differs may be
// one of two that were nearly equal in eager PyTorch; the tokens after it are not compared.
//   husk_gpu_generate FILE TOKENS [list|graph|auto]
//   TOKENS has three lines of numbers: the prompt, the tokens after it, and the lead of each token
//   over the next best
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "gpu.h"

using namespace husk::gpu;

namespace {

constexpr uint64_t kSlot = 16;  // kernels assume tensors aligned to 16 bytes

constexpr double kTie = 0.02;  // between logits of about 3 in bfloat16, where a step is 0.016

template <class T>
std::vector<T> numbers(std::istream& in) {
  std::string line;
  std::getline(in, line);
  std::istringstream words(line);
  std::vector<T> all;
  for (T n; words >> n;) all.push_back(n);
  return all;
}

// A tensor of one or two dimensions on the device, as a value.
struct Tensor {
  Tensor(CUdeviceptr memory, husk_dtype dtype, std::vector<int64_t> dims) : sizes(std::move(dims)) {
    dl.data = reinterpret_cast<void*>(memory);
    dl.device = {kDLCUDA, 0};
    dl.ndim = static_cast<int32_t>(sizes.size());
    dl.dtype = husk_dtype_to_dlpack(dtype);
    dl.shape = sizes.data();
  }
  Tensor(const Tensor&) = delete;
  husk_value value() {
    husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
    v.as.tensor = &dl;
    return v;
  }
  std::vector<int64_t> sizes;
  DLTensor dl = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) give_up("husk_gpu_generate FILE TOKENS [list|graph|auto]");
  std::ifstream file(argv[2]);
  const std::vector<int64_t> prompt = numbers<int64_t>(file), expected = numbers<int64_t>(file);
  const std::vector<double> gaps = numbers<double>(file);
  if (prompt.empty() || expected.empty() || gaps.size() != expected.size())
    give_up("the file does not hold three lines of tokens");
  const std::string mode = argc > 3 ? argv[3] : "auto";
  const auto length = static_cast<int64_t>(prompt.size()),
             count = static_cast<int64_t>(expected.size());

  Driver driver;
  Loaded loaded(argv[1]);
  husk_session* session = loaded.session(mode == "list"    ? HUSK_MODE_LIST
                                         : mode == "graph" ? HUSK_MODE_GRAPH
                                                           : HUSK_MODE_AUTO,
                                         false);
  const uint32_t prefill = loaded.function("prefill"), decode = loaded.function("decode");

  std::vector<int64_t> places(prompt.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  const CUdeviceptr first = driver.alloc(prompt.size() * 8),
                    where = driver.alloc(prompt.size() * 8);
  require(driver.cuMemcpyHtoD_v2_(first, prompt.data(), prompt.size() * 8), "cuMemcpyHtoD");
  require(driver.cuMemcpyHtoD_v2_(where, places.data(), places.size() * 8), "cuMemcpyHtoD");
  const CUdeviceptr tokens = driver.alloc(expected.size() * kSlot),
                    positions = driver.alloc(expected.size() * kSlot);
  auto slot = [](CUdeviceptr base, int64_t i) {
    return base + static_cast<CUdeviceptr>(i) * kSlot;
  };

  husk_error error;
  Tensor prompt_tensor(first, HUSK_I64, {1, length}), place_tensor(where, HUSK_I64, {length});
  Tensor token(tokens, HUSK_I64, {1, 1}), position(positions, HUSK_I64, {1});
  husk_value prefill_in[] = {prompt_tensor.value(), place_tensor.value()},
             decode_in[] = {token.value(), position.value()};
  require(husk_session_resize(session, prefill, prefill_in, 2, &error), error);
  require(husk_session_resize(session, decode, decode_in, 2, &error), error);
  int64_t shape[2];
  require(husk_session_output_shape(session, decode, 2, shape, nullptr, &error), error);
  Tensor logits(driver.alloc(static_cast<size_t>(shape[1]) * 4), HUSK_F32, {1, shape[1]});

  double begin = 0, prefilled = 0, end = 0;
  for (int round = 0; round < 3; ++round) {  // The first run includes lazy initialisation.
    begin = now();
    for (int64_t i = 0; i < count; ++i) {
      Tensor in_token(slot(tokens, i - 1), HUSK_I64, {1, 1}),
          in_position(slot(positions, i - 1), HUSK_I64, {1});
      Tensor out_token(slot(tokens, i), HUSK_I64, {1, 1}),
          out_position(slot(positions, i), HUSK_I64, {1});
      husk_value in[] = {in_token.value(), in_position.value()};
      husk_value out[] = {out_token.value(), out_position.value(), logits.value()};
      require(husk_session_run(session, i ? decode : prefill, driver.stream, i ? in : prefill_in, 2,
                               out, 3, &error),
              error);
      if (i) continue;
      require(driver.cuStreamSynchronize_(driver.stream), "cuStreamSynchronize");
      prefilled = now();
    }
    require(driver.cuStreamSynchronize_(driver.stream), "cuStreamSynchronize");
    end = now();
  }
  std::vector<int64_t> got(expected.size());
  for (int64_t i = 0; i < count; ++i)
    require(driver.cuMemcpyDtoH_v2_(&got[static_cast<size_t>(i)], slot(tokens, i), 8),
            "cuMemcpyDtoH");
  size_t same = 0;
  while (same < got.size() && got[same] == expected[same]) ++same;
  std::printf("%s: prefill of %lld tokens %.0f us, then %.1f us a token; %zu of %zu tokens equal\n",
              mode.c_str(), static_cast<long long>(length), prefilled - begin,
              (end - prefilled) / static_cast<double>(count - 1), same, got.size());
  husk_session_release(session);
  if (same == got.size()) return 0;
  std::printf(
      "the first that differs is number %zu: %lld, not %lld, which was %g ahead of the next best\n",
      same, static_cast<long long>(got[same]), static_cast<long long>(expected[same]), gaps[same]);
  return gaps[same] > kTie;
}
