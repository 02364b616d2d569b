// Runs a package of AOTInductor on the CPU and measures it, for compare.py.
//   aoti_runner PACKAGE INPUTS THREADS OUTPUT
// INPUTS is a file of torch.save with a list of tensors. The outputs of the first run are saved to
// OUTPUT in the same form. Then each line on stdin, the seconds to run for, is answered by a line
// with the median and the minimum of the times in microseconds.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/serialize.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

namespace {

std::vector<char> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "aoti_runner PACKAGE INPUTS THREADS OUTPUT\n");
    return 2;
  }
  const int threads = std::atoi(argv[3]);
  at::set_num_threads(threads);
  const c10::InferenceMode inference;
  torch::inductor::AOTIModelPackageLoader loader(argv[1], "model", threads == 1);
  std::vector<at::Tensor> inputs;
  const c10::IValue list = torch::pickle_load(read(argv[2]));
  for (const c10::IValue& value : list.toListRef()) inputs.push_back(value.toTensor());
  std::ofstream(argv[4], std::ios::binary) << [&] {
    const std::vector<char> bytes = torch::pickle_save(c10::List<at::Tensor>(loader.run(inputs)));
    return std::string(bytes.begin(), bytes.end());
  }();
  std::printf("ready\n");
  std::fflush(stdout);
  using Clock = std::chrono::steady_clock;
  for (std::string line; std::getline(std::cin, line);) {
    const double seconds = std::atof(line.c_str());
    std::vector<double> times;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
      const auto start = Clock::now();
      loader.run(inputs);
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    } while (Clock::now() < end);
    std::sort(times.begin(), times.end());
    std::printf("%.3f %.3f\n", times[times.size() / 2], times.front());
    std::fflush(stdout);
  }
  return 0;
}
