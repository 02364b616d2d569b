// Writes an artifact for each op of the host, which calls it once with correct arguments.
//   husk_op_seeds FOLDER
// Tensors that the op reads are inputs of the function if the op accepts the elements that the
// fuzzers give to inputs, and constants otherwise. Tensors that it writes are outputs, and those
// that it reads and writes are states.
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <husk/ops.h>

#include "compile.h"
#include "correct_calls.h"
#include "device.h"
#include "noise.h"
#include "op_calls.h"
#include "op_scratch.h"

namespace husk::fuzz {
namespace {

using host_test::Call;
using host_test::Entry;
using host_test::memory_bytes;

std::string numbers(const int64_t* values, int64_t count) {
  std::string out = "[";
  for (int64_t i = 0; i < count; ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  return out + "]";
}

std::string literal(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  const std::string out = text;
  return out.find_first_of(".enif") == std::string::npos ? out + ".0" : out;
}

// A call as the text of a program.
class Text {
 public:
  Text(const husk_op& op, const std::vector<Entry>& contract, const std::vector<husk_op_arg>& args,
       bool constants)
      : constants_(constants) {
    std::string call;
    for (size_t i = 0; i < args.size(); ++i)
      call += (i ? ",\n      " : "") + argument(args[i], contract[i]);
    if (results_) give_back("int result(0)");
    text_ = "hir 1\nproducer \"husk\"\ntarget cpu host \"" HUSK_TEST_ARCH "\"\n" + rows_ +
            "function f {\n" + inputs_ + outputs_ + (results_ ? "  output size int\n" : "") +
            "  variant cpu {\n" + buffers_ + "    extern \"" + op.name + "\" (" + call + ")\n" +
            "    return (" + returned_ + ")\n  }\n}\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string argument(const husk_op_arg& arg, const Entry& entry) {
    switch (arg.kind) {
      case HUSK_ARG_TENSOR: return tensor(arg, entry);
      case HUSK_ARG_INT: return std::to_string(arg.i);
      case HUSK_ARG_FLOAT: return literal(arg.f);
      case HUSK_ARG_INTS: return numbers(arg.sizes, arg.count);
      case HUSK_ARG_STRING: return std::string("\"") + arg.string + "\"";
      case HUSK_ARG_RESULT: results_ = true; return "result int";
      case HUSK_ARG_TENSORS: {
        std::string out = "tensors [";
        for (int64_t i = 0; i < arg.count; ++i)
          out += (i ? ", " : "") + argument(arg.tensors[i], entry);
        return out + "]";
      }
      default: return "none";
    }
  }

  std::string tensor(const husk_op_arg& arg, const Entry& entry) {
    const std::string name = "t" + std::to_string(tensors_++);
    const std::string dtype = husk_dtype_name(static_cast<husk_dtype>(arg.dtype));
    const std::string sizes = numbers(arg.sizes, arg.rank);
    const std::string view = "tensor " + name + " " + dtype + " " + sizes + " " +
                             numbers(arg.strides, arg.rank);
    const std::string bytes = std::to_string(memory_bytes(arg));
    if (entry.written && entry.read) {
      rows_ += "state " + name + " u8 [" + bytes + "] fill 0\n";
      return "both " + view;
    }
    if (entry.written) {
      outputs_ += "  output " + name + " tensor " + dtype + " rank " + std::to_string(arg.rank) +
                  "\n";
      buffers_ += "    buffer " + name + " of output bytes " + bytes + "\n";
      give_back(view);
      return "write " + view;
    }
    if (constants_) {
      rows_ += "constant " + name + " u8 [" + bytes + "] bytes \"" + hexadecimal(arg) + "\"\n";
    } else {
      inputs_ += "  input " + name + " tensor " + dtype + " " + sizes + "\n";
      buffers_ += "    buffer " + name + " of input bytes " + bytes + "\n";
    }
    return "read " + view;
  }

  void give_back(const std::string& result) {
    returned_ += (returned_.empty() ? "" : ", ") + result;
  }

  static std::string hexadecimal(const husk_op_arg& arg) {
    std::string out;
    for (size_t i = 0; i < memory_bytes(arg); ++i) {
      char byte[3];
      std::snprintf(byte, sizeof byte, "%02x", static_cast<const uint8_t*>(arg.data)[i]);
      out += byte;
    }
    return out;
  }

  const bool constants_;
  int tensors_ = 0;
  bool results_ = false;
  std::string rows_, inputs_, outputs_, buffers_, returned_, text_;
};

// A copy of the arguments of a call, whose tensors have memory of their own.
class Trial {
 public:
  Trial(const std::vector<husk_op_arg>& from, const std::vector<Entry>& contract, bool pattern)
      : args(from) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].kind == HUSK_ARG_TENSORS) {
        lists_.emplace_back(args[i].tensors, args[i].tensors + args[i].count);
        for (husk_op_arg& tensor : lists_.back()) place(tensor, contract[i], pattern);
        args[i].tensors = lists_.back().data();
      }
      place(args[i], contract[i], pattern);
    }
  }
  bool succeeds(const husk_op& op) {
    static host::Device device({}, host::cpu_features(), nullptr);
    static host_test::OpScratch scratch;
    husk_error error = {};
    const husk_op_context context = host_test::context_for(op, &device, scratch);
    return op.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error) == HUSK_OK;
  }
  std::vector<husk_op_arg> args;

 private:
  void place(husk_op_arg& arg, const Entry& entry, bool pattern) {
    if (arg.kind != HUSK_ARG_TENSOR) return;
    const size_t bytes = memory_bytes(arg);
    auto& memory = memory_.emplace_back(bytes + 1);
    if (entry.written)
      ;  // 0, as states are at first
    else if (pattern)
      fill_pattern(memory.data(), arg.dtype,
                   bytes / husk_dtype_size(static_cast<husk_dtype>(arg.dtype)));
    else if (bytes)
      std::memcpy(memory.data(), arg.data, bytes);
    arg.data = memory.data();
  }
  std::deque<std::vector<uint8_t>> memory_;
  std::deque<std::vector<husk_op_arg>> lists_;
};

// Whether every tensor has elements.
bool is_full(const std::vector<husk_op_arg>& args) {
  for (const husk_op_arg& arg : args)
    if (arg.kind == HUSK_ARG_TENSOR && memory_bytes(arg) == 0) return false;
  return true;
}

bool write(const std::string& folder, const husk_op& op, const std::vector<Entry>& contract,
           const std::vector<husk_op_arg>& args) {
  const bool constants = !Trial(args, contract, true).succeeds(op);
  const Text text(op, contract, args, constants);
  const auto artifact = compiler::compile_text(text.text(), folder);
  if (const auto* error = std::get_if<compiler::Error>(&artifact)) {
    std::fprintf(stderr, "%s\n%s\n", text.text().c_str(), error->text.c_str());
    return false;
  }
  std::string name = op.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  const auto& bytes = std::get<0>(artifact);
  std::ofstream file(folder + "/" + name + ".husk", std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

bool write_seed(const std::string& folder, const husk_op& op, const std::deque<Call>& calls) {
  const std::vector<Entry> contract = host_test::parse_contract(op.contract);
  // One rank alone cannot call a collective.
  if (host_test::has_entry(contract, "token")) return true;
  for (const Call& call : calls)
    if (call.name == op.name && Trial(call.args, contract, false).succeeds(op))
      return write(folder, op, contract, call.args);
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    host_test::Noise noise(host_test::pick_from(random));
    const std::vector<husk_op_arg> args = noise.args(op.name, contract);
    if ((is_full(args) || round > 2000) && Trial(args, contract, false).succeeds(op))
      return write(folder, op, contract, args);
  }
  std::fprintf(stderr, "%s has no correct call\n", op.name);
  return false;
}

int write_seeds(const std::string& folder) {
  std::deque<Call> calls;
  host_test::add_correct_calls(calls);
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  bool good = true;
  for (uint32_t i = 0; i < count; ++i) good = write_seed(folder, ops[i], calls) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace husk::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: husk_op_seeds FOLDER\n");
    return 2;
  }
  return husk::fuzz::write_seeds(argv[1]);
}
