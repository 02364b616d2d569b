// Programs whose kernels are linked as code, compared with the same programs whose kernels are
// loaded.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "../values.h"

extern "C" {
extern const unsigned char husk_model[];  // of model.hir
extern const unsigned char husk_again[];  // of model.husk
}

namespace husk::linked_test {
namespace {

using test::integer;

// The number of images that this process has loaded from anonymous files.
size_t loaded_images() {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    found += line.find("memfd:husk-image") != std::string::npos;
  return found;
}

class Linked : public ::testing::Test {
 protected:
  struct Opened {
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_session* session = nullptr;
  };
  void TearDown() override {
    for (const Opened& each : opened_) {
      husk_session_release(each.session);
      husk_program_release(each.program);
      husk_engine_release(each.engine);
    }
    for (husk_threads& each : pools_) husk_host_threads_release(&each);
  }
  const husk_threads* pool(uint32_t count) {
    pools_.reserve(4);
    EXPECT_EQ(husk_host_threads_create(count, nullptr, &pools_.emplace_back(), &error), HUSK_OK);
    return &pools_.back();
  }
  husk_engine* engine(const husk_port* port, const husk_threads* threads) {
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = port;
    options.threads = threads;
    options.allow_host_images = port == husk_port_host();
    EXPECT_EQ(husk_engine_create(&options, &opened_.emplace_back().engine, &error), HUSK_OK);
    return opened_.back().engine;
  }
  husk_status link(const void* artifact, const husk_threads* threads = nullptr) {
    husk_engine* on = engine(husk_port_host_linked(), threads);
    return husk_program_link(on, artifact, &opened_.back().program, &error);
  }
  husk_session* session() {
    Opened& last = opened_.back();
    EXPECT_EQ(husk_session_create(last.program, nullptr, &last.session, &error), HUSK_OK)
        << error.text;
    return last.session;
  }
  // Runs a function and returns the elements of its first output.
  template <class T>
  std::vector<T> run(husk_session* on, const char* name, std::vector<husk_value> inputs,
                     uint32_t outputs = 1) {
    uint32_t function = 0;
    EXPECT_EQ(husk_program_find_function(opened_.back().program, name, &function, &error), HUSK_OK);
    std::vector<husk_value> out(outputs, husk_value{HUSK_VALUE_NONE, 0, {}});
    status = husk_session_run(on, function, nullptr, inputs.data(),
                              static_cast<uint32_t>(inputs.size()), out.data(), outputs, &error);
    if (status != HUSK_OK) return {};
    const DLTensor* tensor = out[outputs - 1].as.tensor;
    const T* data = static_cast<const T*>(tensor->data);
    return {data, data + tensor->shape[0]};
  }

  husk_status status = HUSK_OK;
  husk_error error{};
  std::vector<Opened> opened_;
  std::vector<husk_threads> pools_;
};

husk_value floats(DLTensor& tensor, std::vector<float>& data, int64_t& size) {
  size = static_cast<int64_t>(data.size());
  tensor = {data.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0};
  husk_value out = {HUSK_VALUE_TENSOR, 0, {}};
  out.as.tensor = &tensor;
  return out;
}

TEST_F(Linked, RunsWithoutLoadingAnImage) {
  for (const unsigned char* artifact : {husk_model, husk_again}) {
    ASSERT_EQ(link(artifact), HUSK_OK) << error.text;
    EXPECT_EQ(run<float>(session(), "add", {}), (std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f}));
  }
  EXPECT_EQ(loaded_images(), 0u);
}

TEST_F(Linked, ComputesWhatALoadedImageComputes) {
  const husk_threads* threads = pool(3);
  std::vector<float> x(100000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 77) * 0.37f;
  DLTensor tensor;
  int64_t size;
  const husk_value in = floats(tensor, x, size);
  ASSERT_EQ(link(husk_model, threads), HUSK_OK) << error.text;
  const auto linked = run<int64_t>(session(), "sum", {in}, 2);
  float linked_total = 0, loaded_total = 0;
  ASSERT_EQ(husk_session_state_get(opened_.back().session, 0, &linked_total, &error), HUSK_OK);
  engine(husk_port_host(), threads);
  ASSERT_EQ(husk_program_open(opened_.back().engine, HUSK_LINKED_FOLDER "/model.husk",
                              &opened_.back().program, &error),
            HUSK_OK)
      << error.text;
  EXPECT_GT(loaded_images(), 0u);
  const auto loaded = run<int64_t>(session(), "sum", {in}, 2);
  ASSERT_EQ(husk_session_state_get(opened_.back().session, 0, &loaded_total, &error), HUSK_OK);
  EXPECT_EQ(linked, loaded);
  EXPECT_EQ(linked, (std::vector<int64_t>{0 + 1 + 4}));  // three threads have taken part
  EXPECT_EQ(std::memcmp(&linked_total, &loaded_total, sizeof(float)), 0);
  EXPECT_GT(linked_total, 0);
}

TEST_F(Linked, ChecksOfKernelsHaveTheirTexts) {
  ASSERT_EQ(link(husk_model), HUSK_OK) << error.text;
  husk_session* on = session();
  run<float>(on, "fail", {integer(2)});
  EXPECT_EQ(status, HUSK_KERNEL);
  EXPECT_NE(std::strstr(error.text, "index out of range"), nullptr) << error.text;
  run<float>(on, "fail", {integer(0)});
  EXPECT_EQ(status, HUSK_OK) << error.text;
}

// The process has the kernels once, so engines at the same time must agree about their threads.
TEST_F(Linked, EnginesAtATimeHaveTheSameThreads) {
  const husk_threads *two = pool(2), *three = pool(3);
  ASSERT_EQ(link(husk_model, two), HUSK_OK) << error.text;
  ASSERT_EQ(link(husk_model, two), HUSK_OK) << error.text;
  EXPECT_EQ(link(husk_model, three), HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "same husk_threads"), nullptr) << error.text;
  EXPECT_EQ(link(husk_model, nullptr), HUSK_UNSUPPORTED);
  EXPECT_EQ(link(husk_again, three), HUSK_OK) << error.text;  // has its own copy of the code
  std::vector<float> x(9, 1.0f);
  DLTensor tensor;
  int64_t size;
  EXPECT_EQ(run<int64_t>(session(), "sum", {floats(tensor, x, size)}, 2),
            (std::vector<int64_t>{0 + 1 + 4}));
  for (Opened& each : opened_) {
    husk_session_release(each.session);
    husk_program_release(each.program);
    each.session = nullptr;
    each.program = nullptr;
  }
  EXPECT_EQ(link(husk_model, three), HUSK_OK) << error.text;
  EXPECT_EQ(run<int64_t>(session(), "sum", {floats(tensor, x, size)}, 2),
            (std::vector<int64_t>{0 + 1 + 4}));
}

// The port takes the launches of `steps` with one call.
TEST_F(Linked, LaunchesInARow) {
  for (const bool linked : {true, false}) {
    if (linked) {
      ASSERT_EQ(link(husk_model), HUSK_OK) << error.text;
    } else {
      engine(husk_port_host(), nullptr);
      ASSERT_EQ(husk_program_open(opened_.back().engine, HUSK_LINKED_FOLDER "/model.husk",
                                  &opened_.back().program, &error),
                HUSK_OK)
          << error.text;
    }
    husk_session* on = session();
    EXPECT_EQ(run<float>(on, "steps", {integer(0), integer(1)}),
              (std::vector<float>{2.5f, 3.5f, 4.5f, 5.5f}));
    EXPECT_EQ(run<float>(on, "steps", {integer(0), integer(0)}),
              (std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f}));
    run<float>(on, "steps", {integer(7), integer(0)});
    EXPECT_EQ(status, HUSK_KERNEL);
    EXPECT_EQ(error.step, 3);
    EXPECT_NE(std::strstr(error.text, "fail"), nullptr) << error.text;
    EXPECT_EQ(run<float>(on, "steps", {integer(0), integer(1)})[0], 2.5f);
  }
}

TEST_F(Linked, ALinkedPortLoadsNoImages) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host_linked();
  options.allow_host_images = 1;
  ASSERT_EQ(husk_engine_create(&options, &opened_.emplace_back().engine, &error), HUSK_OK);
  EXPECT_EQ(husk_program_open(opened_.back().engine, HUSK_LINKED_FOLDER "/model.husk",
                              &opened_.back().program, &error),
            HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "--linkable"), nullptr) << error.text;
  EXPECT_NE(std::strstr(error.text, "image kernels"), nullptr) << error.text;
}

// The same port also runs linked programs.
TEST_F(Linked, ThePortWithALoaderTakesLinkedImages) {
  engine(husk_port_host(), nullptr);
  ASSERT_EQ(husk_program_link(opened_.back().engine, husk_model, &opened_.back().program, &error),
            HUSK_OK)
      << error.text;
  EXPECT_EQ(run<float>(session(), "add", {})[3], 4.5f);
  EXPECT_EQ(loaded_images(), 0u);
}

// A file cannot name code of the process: the bytes of an object file are refused elsewhere.
TEST_F(Linked, TheBytesAreNoFile) {
  engine(husk_port_host(), nullptr);
  uint64_t size = 0;
  std::memcpy(&size, husk_model + 16, sizeof(size));
  husk_program* program = nullptr;
  EXPECT_EQ(husk_program_load(opened_.back().engine, husk_model, size, nullptr, nullptr, &program,
                              &error),
            HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.text, "features 0x1"), nullptr) << error.text;
  EXPECT_EQ(husk_program_verify(husk_model, size, &error), HUSK_UNSUPPORTED);
}

}  // namespace
}  // namespace husk::linked_test
