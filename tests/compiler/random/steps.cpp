#include "writer.h"

namespace husk::test {

void RandomWriter::launch() {
  std::string grid = "(1, 1, 1)";
  if (chance(10)) grid = fmt::format("(1, mod({}, 2), 1)", integer(1));
  if (chance(1)) grid = fmt::format("({}, 1, 1)", integer(1));
  const RandomBuffer from = any_buffer();
  const RandomBuffer* to = target(from.name);
  if (!to) return;
  const std::string at = chance(20) ? fmt::format(" at \"line {}\"", names_) : "";
  const View in = view(from), out = view(*to);
  switch (pick(8)) {
    case 0:
      line("launch change grid {} (both {}, {}, {}){}", grid, out.text, out.bytes, integer(2), at);
      break;
    case 1:
      line("launch absorb grid {} (both {}, read {}, {}, {}){}", grid, out.text, in.text, out.bytes,
           in.bytes, at);
      break;
    case 2:
      if (const RandomBuffer* cell = with_room(8, true); cell && cell->name != from.name)
        line("launch sum grid {} (write {}[0, 8], read {}, {})", grid, cell->name, in.text,
             in.bytes);
      break;
    case 3:
      if (const RandomBuffer* cell = with_room(32, true))
        line(
            "launch record grid {} (write {}[0, 32], {}, mod({}, 100), mod({}, 100), {}, 5, {}, "
            "{})",
            grid, cell->name, integer(1), integer(2), integer(1),
            chance(90) ? "mod(" + integer(2) + ", 99)" : integer(2), plain_float(), plain_float());
      break;
    case 4:
      if (chance(10)) line("launch refuse grid {} ({})", grid, chance(70) ? "14" : integer(1));
      [[fallthrough]];
    default:
      if (chance(10)) {
        line("launch mix grid {} (write {}, null, {}, 0, {}){}", grid, out.text, out.bytes,
             integer(1), at);
      } else {
        line("launch mix grid {} (write {}, read {}, {}, {}, {}){}", grid, out.text, in.text,
             out.bytes, in.bytes, integer(1), at);
      }
  }
}

std::string RandomWriter::op_argument() {
  switch (pick(9)) {
    case 0: return integer(2);
    case 1: return plain_float();
    case 2: return fmt::format("[{}, {}]", integer(1), integer(1));
    case 3: return fmt::format("floats [{}, 0.25]", plain_float());
    case 4: return "\"text\"";
    case 5: return "dtype f16";
    case 6: return "none";
    case 7:
      return fmt::format("tensors [read tensor {}, none, read tensor {}]", tensor(any_buffer()),
                         tensor(any_buffer()));
    default: return fmt::format("read tensor {}", tensor(any_buffer()));
  }
}

void RandomWriter::external() {
  std::string arguments;
  for (uint32_t n = pick(4); n > 0; --n) arguments += op_argument() + ", ";
  const RandomBuffer* to = target();
  if (!to) return;
  const char* access = one_of<const char*>({"write", "both", "atomic"});
  std::string out = fmt::format("{} tensor {}", access, tensor(*to));
  if (chance(15)) out = fmt::format("tensors [{}]", out);
  line("extern \"test::mix\" ({}{})", arguments, out);
}

// One to three steps with results, and lets that name the results.
void RandomWriter::values() {
  std::vector<std::string> names;
  std::string takes;
  auto add_result = [&](bool is_float, const char* type) {
    const std::string name = fresh(is_float ? "g" : "r");
    const size_t n = names.size();
    const std::string_view t = type;
    if (is_float) {
      takes += fmt::format(
          "let {}_raw = fresult({})\nlet {} = fselect(fle({}_raw, 100.0), fmax({}_raw, -100.0), "
          "0.5)\n",
          name, n, name, name, name);
    } else if (t == "u8" || t == "i8" || t == "bool") {
      takes += fmt::format("let {} = range(result({}), -128, 255)\n", name, n);
    } else {
      takes += fmt::format("let {} = mod(result({}), {})\n", name, n, 2 + pick(60));
    }
    names.push_back(name);
    (is_float ? floats_ : ints_).push_back("");  // reserved; the next steps cannot use it
  };
  const size_t ints = ints_.size(), floats = floats_.size();
  std::vector<std::string> steps;
  for (uint32_t n = 1 + pick(3); n > 0; --n) {
    ints_.resize(ints);
    floats_.resize(floats);
    if (chance(30)) {
      const bool two = chance(50);
      const std::string argument = chance(60) ? op_argument() : "none";
      steps.push_back(
          fmt::format("extern \"test::measure:sizes\" ({}, read tensor {}, result int{})", argument,
                      tensor(any_buffer()), two ? ", result float" : ""));
      add_result(false, "i64");
      if (two) add_result(true, "f64");
      continue;
    }
    const RandomBuffer* b = with_room(8, false);
    if (!b) continue;
    struct Type {
      const char* name;
      int width;
      bool is_float;
    };
    const Type type = one_of<Type>({{"u8", 1, false},
                                    {"i8", 1, false},
                                    {"bool", 1, false},
                                    {"i16", 2, false},
                                    {"u16", 2, false},
                                    {"i32", 4, false},
                                    {"u32", 4, false},
                                    {"i64", 8, false},
                                    {"f32", 4, true},
                                    {"f64", 8, true},
                                    {"f16", 2, true},
                                    {"bf16", 2, true}});
    steps.push_back(fmt::format("read {} (read {}[{}, {}])", type.name, b->name,
                                type.width * static_cast<int>(pick(uint32_t(8 / type.width))),
                                type.width));
    add_result(type.is_float, type.name);
  }
  ints_.resize(ints);
  floats_.resize(floats);
  for (const std::string& step : steps)
    out_ += step + "\n";  // op_argument() has written the lets that the step uses
  out_ += takes;
  for (const std::string& name : names) (name[0] == 'g' ? floats_ : ints_).push_back(name);
}

void RandomWriter::let() {
  if (chance(70)) {
    const std::string name = fresh("n");
    line("let {} = {}", name, integer(3));
    ints_.push_back(name);
  } else {
    const std::string name = fresh("f");
    line("let {} = {}", name, floating(3));
    floats_.push_back(name);
  }
}

void RandomWriter::guard() {
  switch (pick(6)) {
    case 0: line("check_le(mod({}, 9), 8) \"always\"", integer(2)); break;
    case 1: line("check_eq(and({}, 0), 0)", integer(2)); break;
    case 2: line("check(le(-1, {})) \"mostly\"", ints_.empty() ? "0" : one_of(ints_)); break;
    case 3: line("check(or({}, 1))", integer(1)); break;
    case 4:
      if (chance(10)) line("check_le({}, {})", integer(1), integer(1));
      break;
    default:
      if (chance(10)) line("check({}) \"perhaps\"", condition());
  }
}

void RandomWriter::when(int depth) {
  const size_t buffers = buffers_.size();
  line("when {} {{", condition());
  statements(static_cast<int>(pick(4)), depth + 1);
  buffers_.resize(buffers);
  if (chance(40)) {
    line("}} else {{");
    statements(static_cast<int>(pick(4)), depth + 1);
    buffers_.resize(buffers);
  }
  line("}}");
}

// A loop with a counter in memory, so that it ends.
void RandomWriter::loop(int depth) {
  const std::string count = fresh("k"), most = fresh("m"), turn = fresh("i");
  const size_t buffers = buffers_.size();
  line("let {} = {}", most,
       chance(60) ? std::to_string(pick(4)) : fmt::format("mod({}, 4)", integer(1)));
  line("buffer {} bytes 8 align 8", count);
  line("fill i64 (write {}, 0)", count);
  line("loop {{");
  statements(static_cast<int>(pick(3)), depth + 1);
  line("read i64 (read {})", count);
  line("let {} = result(0)", turn);
  line("while lt({}, {})", turn, most);
  ints_.push_back(turn);
  statements(static_cast<int>(pick(4)), depth + 1);
  line("fill i64 (write {}, add({}, 1))", count, turn);
  line("}}");
  buffers_.resize(buffers);
  ints_.push_back(most);
}

void RandomWriter::statement(int depth) {
  switch (pick(20)) {
    case 0:
    case 1:
    case 2: return let();
    case 3:
    case 4: return chance(50) ? buffer() : cell();
    case 5: return guard();
    case 6:
    case 7:
    case 8:
    case 9: return launch();
    case 10:
    case 11: return fill();
    case 12: return copy();
    case 13:
    case 14: return external();
    case 15:
    case 16: return values();
    case 17:
    case 18: return depth < 3 ? when(depth) : let();
    default: return depth < 2 ? loop(depth) : launch();
  }
}

void RandomWriter::statements(int count, int depth) {
  for (int i = 0; i < count; ++i) statement(depth);
}

}  // namespace husk::test
