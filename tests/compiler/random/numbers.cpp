#include "writer.h"

namespace husk::test {

std::string RandomWriter::int_leaf() {
  switch (pick(10)) {
    case 0:
    case 1: return std::to_string(static_cast<int>(pick(17)) - 4);
    case 2: return std::to_string(pick(100));
    case 3:
      if (!tensors_.empty()) {
        const RandomTensor& t = one_of(tensors_);
        if (t.rank)
          return fmt::format("{}({}, {})", chance(80) ? "size" : "stride", t.name,
                             pick(uint32_t(t.rank)));
      }
      return chance(50) ? "true" : "false";
    case 4:
      if (chance(4))
        return one_of<std::string>(
            {"9223372036854775807", "-9223372036854775808", "4611686018427387904"});
      return "2";
    default: return ints_.empty() ? "3" : one_of(ints_);
  }
}

std::string RandomWriter::integer(int depth) {
  if (depth <= 0) return int_leaf();
  auto a = [&] { return integer(depth - 1 - static_cast<int>(pick(2))); };
  switch (pick(20)) {
    case 0:
    case 1:
    case 2:
      return fmt::format("{}({}, {})", one_of<std::string>({"add", "sub", "min", "max"}), a(), a());
    case 3: return fmt::format("mul({}, {})", a(), chance(70) ? std::to_string(pick(6)) : a());
    case 4:
    case 5:
      return fmt::format("{}({}, {})", one_of<std::string>({"floordiv", "mod", "cdiv"}), a(),
                         chance(90)   ? std::to_string(1 + pick(9))
                         : chance(50) ? "-3"
                                      : a());
    case 6:
      return fmt::format("pow(mod({}, 9), {})", a(), chance(90) ? std::to_string(pick(4)) : a());
    case 7:
    case 8:
      return fmt::format("{}({}, {})", one_of<std::string>({"eq", "ne", "lt", "le", "and", "or"}),
                         a(), a());
    case 9: return fmt::format("not({})", a());
    case 10: return fmt::format("select({}, {}, {})", a(), a(), a());
    case 11:
      return fmt::format("{}({}, {})", one_of<std::string>({"bit_and", "bit_or", "bit_xor"}), a(),
                         a());
    case 12:
      return fmt::format("shl(mod({}, 50), {})", a(), chance(90) ? std::to_string(pick(8)) : a());
    case 13: return fmt::format("shr({}, {})", a(), chance(90) ? std::to_string(pick(70)) : a());
    case 14:
      return fmt::format("{}({})", one_of<std::string>({"trunc", "floor", "ceil", "round"}),
                         floating(depth - 1));
    case 15:
      return fmt::format("{}({}, {})", one_of<std::string>({"feq", "flt", "fle"}),
                         floating(depth - 1), floating(depth - 1));
    case 16:
      if (chance(10))
        return fmt::format("range({}, {}, {})", a(), -static_cast<int>(pick(9)), pick(90));
      return fmt::format("range(mod({}, 20), 0, {})", a(), chance(95) ? 19 : 18);
    case 17: return fmt::format("mod({}, 97)", a());
    default: return int_leaf();
  }
}

std::string RandomWriter::floating(int depth) {
  if (depth <= 0 || chance(20)) {
    if (!floats_.empty() && chance(60)) return one_of(floats_);
    return one_of<std::string>({"0.0", "-0.0", "1.0", "0.5", "-2.25", "3.0", "1e3", "inf", "nan"});
  }
  auto a = [&] { return floating(depth - 1 - static_cast<int>(pick(2))); };
  switch (pick(8)) {
    case 0:
    case 1:
      return fmt::format("{}({}, {})", one_of<std::string>({"fadd", "fsub", "fmul", "fdiv"}), a(),
                         a());
    case 2: return fmt::format("{}({}, {})", one_of<std::string>({"fmin", "fmax"}), a(), a());
    case 3: return fmt::format("fselect({}, {}, {})", integer(depth - 1), a(), a());
    case 4: return fmt::format("sqrt({})", a());
    case 5:
      return fmt::format("fpow({}, {})", a(), one_of<std::string>({"2.0", "0.5", "1.0", "-1.0"}));
    default: return fmt::format("float({})", integer(depth - 1));
  }
}

std::string RandomWriter::condition() {
  if (!ints_.empty() && chance(70)) {
    const std::string x = one_of(ints_);
    return chance(60) ? fmt::format("lt({}, {})", x, pick(20))
                      : fmt::format("mod({}, {})", x, 2 + pick(3));
  }
  return integer(2);
}

std::string RandomWriter::size() {
  switch (pick(8)) {
    case 0: return std::to_string(pick(40));
    case 1: return std::to_string(1 + pick(30));
    case 2: return fmt::format("mod({}, {})", integer(1), 1 + pick(50));
    case 3: return fmt::format("max(min({}, {}), 0)", integer(1), pick(64));
    case 4: return fmt::format("range(mod({}, 33), 0, 32)", integer(1));
    case 5: return fmt::format("bit_and({}, 63)", integer(1));  // intervals find no bound for it
    default:
      for (const RandomTensor& t : tensors_)
        if (t.rank)
          return fmt::format("mul(size({}, {}), {})", t.name, pick(uint32_t(t.rank)), 1 + pick(7));
      return "24";
  }
}

std::string RandomWriter::plain_float() {
  const std::string name = fresh("f");
  line("let {} = {}", name, floating(2));
  return fmt::format("fselect(feq({}, {}), {}, 0.5)", name, name, name);
}

}  // namespace husk::test
