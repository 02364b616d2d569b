// huskc: compiles the text form of a program to an artifact.
#include <fmt/format.h>
#include <unistd.h>

#include "compile.h"
#include "read/artifact.h"
#include "read/report.h"
#include "tools/command_line.h"
#include "write/output_file.h"

#if defined(__aarch64__)
#define HUSK_MACHINE "aarch64"
#else
#define HUSK_MACHINE "x86-64"
#endif

namespace {

using namespace husk::compiler;

struct Arguments {
  std::vector<std::string> inputs;
  std::string input, output, root, piped, weights = "inside", emit = "husk", symbol,
                                          machine = HUSK_MACHINE;
  bool print = false, print_lowered = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  huskc model.hir -o model.husk               compile to an artifact\n"
    "  huskc model.hir --print                     check the syntax and print it formatted\n"
    "  huskc model.hir -o model.o --emit=obj       compile to an object file, which defines\n"
    "                                              `extern const unsigned char husk_model[];`\n"
    "  huskc model.rank0.husk model.rank1.husk -o model.husk\n"
    "                                              join the artifacts of all ranks\n\n"
    "Exit codes: 0 success; 1 the program or a file is wrong; 2 the command line is wrong.";

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

// Opens the compiled artifact and prints a report about it.
template <class F>
int print_report(const std::string& path, F report) {
  std::string error;
  const auto artifact = Artifact::open(path, error);
  if (!artifact) return refuse({0, 0, error}, path);
  fmt::print("{}", report(*artifact));
  return 0;
}

int write_object(const Arguments& a) {
  const std::string symbol = a.symbol.empty() ? symbol_of(a.output) : a.symbol;
  const auto result = compile_object(a.input, a.output, a.root, symbol, *machine_of(a.machine));
  if (const Error* error = std::get_if<Error>(&result)) return refuse(*error, a.input);
  const ObjectSummary& summary = std::get<ObjectSummary>(result);
  for (const std::string& name : summary.loaded)
    fmt::print(stderr,
               "{}: image '{}' is loaded when the program runs; export with --linkable to link its "
               "kernels as code\n",
               a.output, name);
  if (summary.foreign)
    fmt::print(stderr,
               "{}: no host image is for {}, so the program will not find its kernels; choose "
               "--machine, or export for this machine\n",
               a.output, a.machine);
  if (is_stream(a.output)) return 0;
  fmt::print("{}: an artifact of {} bytes for {}: extern const unsigned char {}[];\n", a.output,
             summary.artifact_bytes, a.machine, symbol);
  for (const std::string& name : summary.linked)
    fmt::print("  the kernels of image '{}' are code of the object file\n", name);
  return 0;
}

int write_artifact(const Arguments& a) {
  const auto result = compile_file(a.input, a.output, a.root, {a.piped, STDIN_FILENO},
                                   a.weights == "beside" ? Weights::beside : Weights::inside);
  if (const Error* error = std::get_if<Error>(&result)) return refuse(*error, a.input);
  if (is_stream(a.output)) return 0;  // the text would mix with the artifact on /dev/stdout
  const Summary& s = std::get<Summary>(result);
  if (a.print_lowered)
    if (const int status = print_report(a.output, report_code)) return status;
  fmt::print(
      "{}: {} functions, {} steps, {} registers, metadata {} bytes, images {} bytes, constants {} "
      "bytes\n",
      a.output, s.functions, s.steps, s.registers, s.metadata_bytes, s.image_bytes,
      s.constant_bytes);
  if (!s.weights.empty()) fmt::print("  the constants are in the file {} beside it\n", s.weights);
  return print_report(a.output,
                      [](const Artifact& artifact) { return report_plan_summary(artifact); });
}

int write_ranks(const Arguments& a) {
  const auto result = join_ranks({a.inputs.begin(), a.inputs.end()}, a.output);
  if (const Error* error = std::get_if<Error>(&result)) return refuse(*error, a.output);
  const RanksSummary& s = std::get<RanksSummary>(result);
  fmt::print("{}: {} ranks, {} bytes; files of their own would have {} bytes more\n", a.output,
             a.inputs.size(), s.file_bytes, s.shared_bytes);
  return 0;
}

int run(const Arguments& a) {
  if (a.inputs.size() > 1) return write_ranks(a);
  if (a.print)
    if (const int status = print_text(a.input)) return status;
  if (a.output.empty()) return 0;
  return a.emit == "obj" ? write_object(a) : write_artifact(a);
}

std::string check_symbol(const std::string& symbol) {
  const std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  const bool good = !symbol.empty() && letters.find(symbol[0]) != letters.npos &&
                    symbol.find_first_not_of(std::string(letters) + "0123456789") == symbol.npos;
  return good ? "" : fmt::format("'{}' is not a C identifier", symbol);
}

int run_tool(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Compiles a Husk program from its text form (.hir) to an artifact (.husk).",
               "huskc"};
  const CLI::Option* input =
      app.add_option(
             "input", a.inputs,
             "The program, model.hir; or the artifacts of all ranks of a program, in order, "
             "which are joined into one file")
          ->required();
  const CLI::Option* output = app.add_option(
      "-o,--output", a.output,
      "The file to write, model.husk; may be left out with --print. A pipe or a device, "
      "such as /dev/stdout, gets the bytes and nothing else");
  app.add_option("--root", a.root,
                 "The folder that paths in the program are relative to (default: that of the "
                 "input)");
  app.add_option("--stdin", a.piped,
                 "The file of the program that is read from standard input: a safetensors file "
                 "whose tensors are in the order of the program's constants, so that no file of "
                 "weights needs to be written before the artifact")
      ->option_text("FILE");
  app.add_option("--weights", a.weights,
                 "Where the constants lie: in the artifact (inside), or in a safetensors file "
                 "beside it, whose name is the hash of its content (beside)")
      ->check(husk::tools::one_of({"inside", "beside"}))
      ->capture_default_str();
  app.add_option("--emit", a.emit,
                 "What to write: an artifact (husk), or an object file that contains it for "
                 "husk_program_link (obj)")
      ->check(husk::tools::one_of({"husk", "obj"}))
      ->capture_default_str();
  const CLI::Option* symbol = app.add_option(
                                     "--symbol", a.symbol,
                                     "With --emit=obj: the C name of the artifact (default: "
                                     "husk_ and the name of the output)")
                                  ->check(CLI::Validator(check_symbol, "NAME"));
  const CLI::Option* machine = app.add_option("--machine", a.machine,
                                              "With --emit=obj: the machine of the object file")
                                   ->check(husk::tools::one_of({"x86-64", "aarch64"}))
                                   ->capture_default_str();
  app.add_flag("--print", a.print, "Print the program, formatted and without comments");
  app.add_flag("--print-lowered", a.print_lowered,
               "Print the compiled code, as husk-dump --output=code does");
  app.footer(kFooter);
  if (const auto done = husk::tools::parse(app, argc, argv)) return *done;

  a.input = a.inputs[0];
  for (const CLI::Option* each : app.get_options())
    if (a.inputs.size() > 1 && each->count() && each != input && each != output)
      return husk::tools::usage_error(
          app, fmt::format("{} takes one input; artifacts of ranks are joined as they are",
                           each->get_name()));
  if (a.output.empty() && (!a.print || a.print_lowered))
    return husk::tools::usage_error(
        app, "write -o model.husk to compile, or --print to print the program");
  if (a.emit == "husk" && (*symbol || *machine))
    return husk::tools::usage_error(app, "--symbol and --machine need --emit=obj");
  if (a.emit == "obj" && !a.piped.empty())
    return husk::tools::usage_error(app, "--stdin needs --emit=husk");
  if (a.emit == "obj" && a.weights == "beside")
    return husk::tools::usage_error(app, "--weights=beside needs --emit=husk");
  if (a.emit == "obj" && a.print_lowered)
    return husk::tools::usage_error(app, "--print-lowered needs --emit=husk");
  if (a.print_lowered && is_stream(a.output))
    return husk::tools::usage_error(app, "--print-lowered needs a regular file as the output");
  remove_output_on_signals();
  return run(a);
}

}  // namespace

int main(int argc, char** argv) {
  return husk::tools::guarded("huskc", 1, [&] { return run_tool(argc, argv); });
}
