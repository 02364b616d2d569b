// huskc: the text form in, the artifact out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "compile.h"
#include "read/artifact.h"
#include "read/report.h"

#if defined(__aarch64__)
#define HUSK_MACHINE "aarch64"
#else
#define HUSK_MACHINE "x86-64"
#endif

namespace {

using namespace husk::compiler;

struct Arguments {
  std::string input, output, root, emit = "husk", symbol, machine = HUSK_MACHINE;
  bool print = false, print_lowered = false;
};

int refuse(const Error& error, const std::string& name) {
  fmt::print(stderr, "{}\n", describe(error, name));
  return 1;
}

int print_text(const std::string& path) {
  const auto text = format_file(path);
  if (const Error* error = std::get_if<Error>(&text)) return refuse(*error, path);
  fmt::print("{}", std::get<std::string>(text));
  return 0;
}

int print_code(const std::string& path) {
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (!artifact) return refuse({0, 0, error}, path);
  fmt::print("{}", report_code(*artifact));
  return 0;
}

// What memory each variant will take: the runtime's planner, asked now.
int print_plan(const std::string& path) {
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (!artifact) return refuse({0, 0, error}, path);
  fmt::print("{}", report_plan_summary(*artifact));
  return 0;
}

int write_object(const Arguments& a) {
  const std::string symbol = a.symbol.empty() ? symbol_of(a.output) : a.symbol;
  const auto made = compile_object(a.input, a.output, a.root, symbol, *machine_of(a.machine));
  if (const Error* error = std::get_if<Error>(&made)) return refuse(*error, a.input);
  fmt::print("{}: an artifact of {} bytes for {}: extern const unsigned char {}[];\n", a.output, std::get<uint64_t>(made),
             a.machine, symbol);
  return 0;
}

int run(const Arguments& a) {
  if (a.print)
    if (const int status = print_text(a.input)) return status;
  if (a.output.empty()) return 0;
  if (a.emit == "obj") return write_object(a);
  const auto made = compile_file(a.input, a.output, a.root);
  if (const Error* error = std::get_if<Error>(&made)) return refuse(*error, a.input);
  const Summary& s = std::get<Summary>(made);
  if (a.print_lowered)
    if (const int status = print_code(a.output)) return status;
  fmt::print("{}: {} functions, {} steps, {} registers, metadata {} bytes, images {} bytes, constants {} bytes\n",
             a.output, s.functions, s.steps, s.registers, s.metadata_bytes, s.image_bytes, s.constant_bytes);
  return print_plan(a.output);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Compiles a Husk program from its text form (.hir) to an artifact (.husk).", "huskc"};
  app.set_version_flag("--version", "huskc " HUSK_VERSION);
  app.add_option("input", a.input, "The program, model.hir")->required();
  app.add_option("-o,--output", a.output, "The artifact to write, model.husk; may be left out with --print");
  app.add_option("--root", a.root, "The folder that paths in the text are relative to (default: that of the input)");
  app.add_option("--emit", a.emit, "husk: an artifact; obj: an object file with it, for husk_program_link")
      ->check(CLI::IsMember({"husk", "obj"}))->capture_default_str();
  app.add_option("--symbol", a.symbol, "The C name of the artifact in the object file (default: husk_ and the output's name)");
  app.add_option("--machine", a.machine, "What the object file is for")->check(CLI::IsMember({"x86-64", "aarch64"}))
      ->capture_default_str();
  app.add_flag("--print", a.print, "Print the program as the printer writes it");
  app.add_flag("--print-lowered", a.print_lowered, "Print the code that was made");
  CLI11_PARSE(app, argc, argv);
  if (a.output.empty() && (!a.print || a.print_lowered)) {
    fmt::print(stderr, "huskc: say where to write with -o model.husk, or what to print with --print\n");
    return 1;
  }
  return run(a);
}
