// The writer of a random program. Each group of its methods has a file: numbers, memory, steps.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

namespace husk::test {

// A tensor input.
struct RandomTensor {
  std::string name;
  int rank;
};

// A buffer that statements may use. Its size is an expression, which is at least `room`.
struct RandomBuffer {
  std::string name, bytes;
  int room;
  bool writable;
};

class RandomWriter {
 public:
  explicit RandomWriter(uint32_t seed) : random_(seed * 2654435761u + 12345) {}
  std::string program();

 private:
  uint32_t pick(uint32_t n) { return random_() % n; }
  bool chance(uint32_t percent) { return pick(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[pick(static_cast<uint32_t>(all.size()))];
  }
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  std::string fresh(const char* letter) { return letter + std::to_string(++names_); }

  // numbers.cpp
  std::string integer(int depth);
  std::string floating(int depth);
  std::string condition();
  std::string size();         // an expression with a value of 0..64
  std::string plain_float();  // never NaN
  std::string int_leaf();

  // memory.cpp
  struct View {
    std::string text, bytes;  // "b[0, n]", "n"
  };
  View view(const RandomBuffer& b);
  const RandomBuffer& any_buffer() { return one_of(buffers_); }
  // A buffer to write that is not `other`; null if there is none.
  const RandomBuffer* target(const std::string& other = "");
  // A buffer with at least `bytes` bytes; null if there is none.
  const RandomBuffer* with_room(int bytes, bool writable);
  std::string tensor(const RandomBuffer& b);
  void buffer();
  void cell();
  void fill();
  void copy();

  // steps.cpp
  void launch();
  void external();
  std::string op_argument();
  void values();
  void let();
  void guard();
  void statement(int depth);
  void statements(int count, int depth);
  void when(int depth);
  void loop(int depth);

  // program.cpp
  void inputs();
  void outputs();
  void finish();

  std::mt19937 random_;
  std::string out_;
  int names_ = 0;
  std::vector<RandomTensor> tensors_;
  std::vector<std::string> ints_, floats_;
  std::vector<RandomBuffer> buffers_;
  std::string declarations_;
  std::vector<std::string> results_;
};

}  // namespace husk::test
