#include "writer.h"

namespace husk::test {

RandomWriter::View RandomWriter::view(const RandomBuffer& b) {
  switch (pick(12)) {
    case 0: {
      const std::string part = fmt::format("min({}, {})", b.bytes, pick(20));
      return {fmt::format("{}[0, {}]", b.name, part), part};
    }
    case 1: {
      const std::string from = fmt::format("min({}, {})", b.bytes, pick(20)),
                        rest = fmt::format("sub({}, {})", b.bytes, from);
      return {fmt::format("{}[{}, {}]", b.name, from, rest), rest};
    }
    case 2: {
      const std::string half = fmt::format("floordiv({}, 2)", b.bytes);
      return {fmt::format("{}[{}, {}]", b.name, half, half), half};
    }
    case 3:
      if (chance(8)) {  // may lie outside of the buffer
        const std::string part = fmt::format("mod({}, 24)", integer(1));
        return {fmt::format("{}[mod({}, 24), {}]", b.name, integer(1), part), part};
      }
      [[fallthrough]];
    default: return {b.name, b.bytes};
  }
}

const RandomBuffer* RandomWriter::target(const std::string& other) {
  for (int i = 0; i < 8; ++i) {
    const RandomBuffer& b = any_buffer();
    if (b.writable && b.name != other) return &b;
  }
  return nullptr;
}

const RandomBuffer* RandomWriter::with_room(int bytes, bool writable) {
  for (int i = 0; i < 20; ++i) {
    const RandomBuffer& b = any_buffer();
    if (b.room >= bytes && (b.writable || !writable)) return &b;
  }
  return nullptr;
}

std::string RandomWriter::tensor(const RandomBuffer& b) {
  if (b.room >= 16 && chance(50)) {
    return b.name + " " +
           one_of<std::string>({"i16 [3] [2] offset 1", "u8 [2, 3] [8, 2]", "i32 [] [] offset 2",
                                "f32 [2, 2] [0, 1]", "u8 [0, 4] [4, 1]", "f64 [2] [1]"});
  }
  if (chance(30)) return fmt::format("{} u8 [floordiv({}, 2), 2] [2, 1]", b.name, b.bytes);
  if (chance(10)) return fmt::format("{} i16 [floordiv({}, 4)] [2]", b.name, b.bytes);
  return fmt::format("{} u8 [{}] [1]", b.name, b.bytes);
}

// Declares a buffer of random size and fills it, so that every read byte was written.
void RandomWriter::buffer() {
  if (buffers_.size() > 14) return;
  const std::string name = fresh("b"), bytes = name + "_n";
  line("let {} = {}", bytes, size());
  line("buffer {} bytes {}{}", name, bytes,
       chance(50) ? fmt::format(" align {}", 1 << pick(9)) : "");
  line("fill u8 (write {}, {})", name, pick(256));
  buffers_.push_back({name, bytes, 0, true});
  ints_.push_back(bytes);
}

// Declares a buffer of a known size.
void RandomWriter::cell() {
  if (buffers_.size() > 14) return;
  const std::string name = fresh("c");
  const int bytes = 8 * static_cast<int>(1 + pick(6));
  line("buffer {} bytes {} align {}", name, bytes, 8 << pick(4));
  line("fill u8 (write {}, {})", name, pick(256));
  buffers_.push_back({name, std::to_string(bytes), bytes, true});
}

void RandomWriter::fill() {
  const RandomBuffer* b = with_room(8, true);
  switch (b ? pick(6) : 0) {
    case 0:
      if (const RandomBuffer* t = target())
        line("fill u8 (write {}, {})", view(*t).text, pick(256));
      break;
    case 1: line("fill i64 (write {}[0, 8], {})", b->name, integer(2)); break;
    case 2:
      line("fill i16 (write {}[{}, {}], mod({}, 999))", b->name, 2 * pick(2), 2 + pick(3),
           integer(2));
      break;
    case 3: line("fill f32 (write {}[4, 4], {})", b->name, plain_float()); break;
    case 4: line("fill f64 (write {}[0, 8], {})", b->name, plain_float()); break;
    default:
      line("fill {} (write {}[0, 4], {})", one_of<std::string>({"bool", "i32", "u32"}), b->name,
           chance(90) ? fmt::format("mod({}, 1000)", integer(2)) : integer(2));
  }
}

void RandomWriter::copy() {
  const RandomBuffer from = any_buffer();
  const RandomBuffer* to = target(from.name);
  if (!to) return;
  const std::string bytes = fmt::format("min({}, {})", from.bytes, to->bytes);
  line("copy (write {}[0, {}], read {}[0, {}])", to->name, bytes, from.name, bytes);
}

}  // namespace husk::test
