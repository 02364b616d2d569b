#include "loaded_model.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <husk/port_host.h>

#include "compile.h"

#include <nlohmann/json.hpp>

namespace husk::test {

namespace {

using Json = nlohmann::json;

void check(husk_status status, const husk_error& error) {
  if (status != HUSK_OK) throw std::runtime_error(error.text);
}

std::string utf8(uint32_t point) {
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

// Byte-level BPE without rules: the tokens 0 to 255 are bytes.
std::string tokenizer() {
  Json vocabulary = Json::object();
  uint32_t other = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
                           byte >= 174;
    vocabulary[utf8(is_itself ? byte : other++)] = byte;
  }
  const Json json = {
      {"added_tokens", {{{"id", LM_END}, {"content", "<end>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  return json.dump(-1, ' ', true);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char one : text) {
    if (one == '"' || one == '\\') result += '\\';
    result += one;
  }
  return result + "\"";
}

constexpr const char* copy_function = R"(
function copy {
  input source int 0..2
  input slot int 0..2
  input position int 0..95
  input count int 1..MOST
  output end tensor i64 rank 1
  variant cpu {
    check_le(add(position, count), MOST)
    buffer end of output bytes 8
    launch copy grid (1, 1, 1) (both cache, source, slot, position, count, write end)
    return (tensor end i64 [1] [1])
  }
}
)";

constexpr const char* control_functions = R"(
function adjust {
  input logits tensor f32 [1..SLOTS, VOCABULARY]
  input history tensor i64 [1..SLOTS, 1..WIDTH]
  input lengths tensor i64 [1..SLOTS]
  input prompts tensor i64 [1..SLOTS]
  input repetition tensor f32 [1..SLOTS]
  input presence tensor f32 [1..SLOTS]
  input frequency tensor f32 [1..SLOTS]
  input allowed tensor i32 [1..SLOTS, WORDS]
  output adjusted tensor f32 rank 2
  variant cpu {
    let n = size(logits, 0)
    let m = size(history, 1)
    buffer logits of input bytes mul(n, ROW) align 4
    buffer history of input bytes mul(mul(n, m), 8) align 8
    buffer lengths of input bytes mul(n, 8) align 8
    buffer prompts of input bytes mul(n, 8) align 8
    buffer repetition of input bytes mul(n, 4) align 4
    buffer presence of input bytes mul(n, 4) align 4
    buffer frequency of input bytes mul(n, 4) align 4
    buffer allowed of input bytes mul(mul(n, WORDS), 4) align 4
    buffer adjusted of output bytes mul(n, ROW)
    launch adjust grid (1, 1, 1) (read logits, read history, read lengths, read prompts,
      read repetition, read presence, read frequency, read allowed, n, m, write adjusted)
    return (tensor adjusted f32 [n, VOCABULARY] [VOCABULARY, 1])
  }
}
function rank {
  input logits tensor f32 [1..SLOTS, VOCABULARY]
  input tokens tensor i64 [1..SLOTS]
  output logprobs tensor f32 rank 1
  output top tensor i64 rank 2
  output top_logprobs tensor f32 rank 2
  variant cpu {
    let n = size(logits, 0)
    buffer logits of input bytes mul(n, ROW) align 4
    buffer tokens of input bytes mul(n, 8) align 8
    buffer logprobs of output bytes mul(n, 4)
    buffer top of output bytes mul(n, RANKED8)
    buffer top_logprobs of output bytes mul(n, RANKED4)
    launch rank grid (1, 1, 1) (read logits, read tokens, n, write logprobs, write top,
      write top_logprobs)
    return (tensor logprobs f32 [n] [1], tensor top i64 [n, RANKED] [RANKED, 1],
      tensor top_logprobs f32 [n, RANKED] [RANKED, 1])
  }
}
)";

constexpr const char* verify_function = R"(
function verify {
  input tokens tensor i64 [1..SLOTS, 2..VERIFIED]
  input positions tensor i64 [1..SLOTS]
  input span int 1..MOST
  output next tensor i64 rank 1
  output logits tensor f32 rank 2
  variant cpu {
    let n = size(tokens, 0)
    let k = size(tokens, 1)
    check_eq(size(positions, 0), n)
    buffer tokens of input bytes mul(mul(n, k), 8) align 8
    buffer positions of input bytes mul(n, 8) align 8
    buffer next of output bytes mul(mul(n, k), 8)
    buffer logits of output bytes mul(mul(n, k), ROW)
    launch verify grid (1, 1, 1) (read tokens, read positions, both cache, n, k, span, write next,
      write logits)
    return (tensor next i64 [mul(n, k)] [1],
      tensor logits f32 [mul(n, k), VOCABULARY] [VOCABULARY, 1])
  }
}
)";

constexpr const char* paged_copy_function = R"(
function copy {
  input source int 0..PAGES
  input page int 0..PAGES
ROWS_INPUT  output copied tensor i64 rank 1
  variant cpu {
    buffer copied of output bytes 8
    launch copy grid (1, 1, 1) (both cache, source, page, write copiedROWS_ARGUMENT)
    return (tensor copied i64 [1] [1])
  }
}
)";

// A constant of zeros.
std::string zeros(const char* name, const char* dtype, int rows, int columns, int size) {
  const int count = (LM_ADAPTERS + 1) * rows * columns;
  return fmt::format("constant {} {} [{}, {}, {}] bytes \"{}\"\n", name, dtype, LM_ADAPTERS + 1,
                     rows, columns, std::string(static_cast<size_t>(count * size * 2), '0'));
}

// Gives prefill, decode and verify an adapter of each slot.
void add_adapters(std::string& body) {
  const std::string matrices =
      ", read model.layer.lora_A, read model.layer.lora_B, read model.other.lora_A, read "
      "model.other.lora_B)\n";
  const auto change = [&](std::string name, const std::string& input, const std::string& argument,
                          const std::string& parameter) {
    const size_t kernel = body.find("kernel " + name + " ");
    body.replace(body.find("\"" + name + "\"", kernel), name.size() + 2,
                 "\"" + name + "_adapted\"");
    body.insert(body.find(")\n", kernel), ", " + parameter + ", ptr, ptr, ptr, ptr");
    const size_t function = body.find("function " + name + " {");
    if (function == std::string::npos) return;
    body.insert(body.find("  output", function), "  input " + input + "\n");
    const size_t launch = body.find("launch " + name, function);
    body.replace(body.find(")\n", launch), 2, ", " + argument + matrices);
    if (parameter == "ptr") {
      body.insert(body.find("    buffer", function),
                  "    check_eq(size(adapters, 0), n)\n"
                  "    buffer adapters of input bytes mul(n, 8) align 8\n");
    }
  };
  change("prefill", "adapter int 0..2", "adapter", "i64");
  change("decode", "adapters tensor i64 [1..SLOTS]", "read adapters", "ptr");
  change("verify", "adapters tensor i64 [1..SLOTS]", "read adapters", "ptr");
  body.insert(body.find("function prefill"),
              zeros("model.layer.lora_A", "f32", LM_RANK, LM_INPUTS, 4) +
                  zeros("model.layer.lora_B", "f32", LM_OUTPUTS, LM_RANK, 4) +
                  zeros("model.other.lora_A", "bf16", LM_RANK, LM_OTHER_INPUTS, 2) +
                  zeros("model.other.lora_B", "bf16", LM_OTHER_OUTPUTS, LM_RANK, 2));
}

constexpr const char* image_functions = R"(
function image {
  input pixels tensor f32 [WIDE, PATCHES]
  output rows tensor f32 rank 2
  variant cpu {
    buffer pixels of input bytes PIXELS4 align 4
    buffer rows of output bytes PIXELS4
    launch image grid (1, 1, 1) (read pixels, write rows)
    return (tensor rows f32 [PATCHES, WIDE] [WIDE, 1])
  }
}
function prefill_images {
  input tokens tensor i64 [1..CHUNK]
  input slot int 0..2
  input position int 0..95
  input span int 1..MOST
  input rows tensor i64 [1..CHUNK]
  input embeddings tensor f32 [1..CHUNK, WIDE]
EXTRA_INPUT  output next tensor i64 rank 1
  output logits tensor f32 rank 2
  variant cpu {
    let n = size(tokens, 0)
    let m = size(embeddings, 0)
    check_le(add(position, n), span)
    check_eq(size(rows, 0), n)
    buffer tokens of input bytes mul(n, 8) align 8
    buffer rows of input bytes mul(n, 8) align 8
    buffer embeddings of input bytes mul(mul(m, WIDE), 4) align 4
EXTRA_BUFFER    buffer next of output bytes 8
    buffer logits of output bytes ROW
    launch prefill_images grid (1, 1, 1) (read tokens, both cache, n, slot, position, span,
      read rows, read embeddings, m, IMAGE_KIND, read EXTRA_NAME, write next, write logits)
    return (tensor next i64 [1] [1], tensor logits f32 [1, VOCABULARY] [VOCABULARY, 1])
  }
}
)";

void replace(std::string& body, const std::string& name, const std::string& by) {
  for (size_t at; (at = body.find(name)) != std::string::npos;) body.replace(at, name.size(), by);
}

// Gives the file functions for images, and, for those in a grid, `decode` and `verify` shifts.
void add_images(std::string& body, int kind) {
  body.insert(body.find("state cache"),
              "kernel image kernels \"image\" (ptr, ptr)\n"
              "kernel prefill_images kernels \"prefill_images\" (ptr, ptr, i64, i64, i64, i64, "
              "ptr, ptr, i64, i64, ptr, ptr, ptr)\n");
  std::string functions = image_functions;
  const std::string name = kind == LM_GRID ? "places" : kind == LM_TWO_WAY ? "ends" : "rows";
  std::string input, buffer;
  if (kind == LM_TWO_WAY) {
    input = "  input ends tensor i64 [1..CHUNK]\n";
    buffer = "    check_eq(size(ends, 0), n)\n    buffer ends of input bytes mul(n, 8) align 8\n";
  }
  if (kind == LM_GRID) {
    input = "  input places tensor i64 [3, 1..CHUNK]\n";
    buffer =
        "    check_eq(size(places, 1), n)\n    buffer places of input bytes mul(n, 24) align 8\n";
  }
  replace(functions, "EXTRA_INPUT", input);
  replace(functions, "EXTRA_BUFFER", buffer);
  replace(functions, "EXTRA_NAME", name);
  replace(functions, "IMAGE_KIND", std::to_string(kind));
  body.insert(body.find("function sample"), functions);
  if (kind != LM_GRID) return;
  for (const std::string function : {"decode", "verify"}) {
    const size_t kernel = body.find("kernel " + function + " ");
    body.replace(body.find("\"" + function + "\"", kernel), function.size() + 2,
                 "\"" + function + "_shifted\"");
    body.insert(body.find(")\n", kernel), ", ptr");
    const size_t begin = body.find("function " + function + " {");
    if (begin == std::string::npos) continue;
    body.insert(body.find("  output", begin), "  input shifts tensor i64 [1..SLOTS]\n");
    body.insert(body.find("    buffer", begin),
                "    check_eq(size(shifts, 0), n)\n"
                "    buffer shifts of input bytes mul(n, 8) align 8\n");
    const size_t launch = body.find("launch " + function, begin);
    body.insert(body.find(")\n", launch), ", read shifts");
  }
}

// Gives the file a function `encode`, whose input `prefill` and `decode` read; `copy` copies it.
void add_encoder(std::string& body, int kind, bool has_pages) {
  const bool takes_tokens = kind == LM_OF_TOKENS;
  const auto change = [&](const std::string& name, const std::string& parameters,
                          const std::string& arguments) {
    const size_t kernel = body.find("kernel " + name + " ");
    body.replace(body.find("\"" + name + "\"", kernel), name.size() + 2, "\"" + name + "_paired\"");
    body.insert(body.find(")\n", kernel), parameters);
    const size_t function = body.find("function " + name + " {");
    if (function == std::string::npos) return;
    if (takes_tokens && name != "copy") {
      body.insert(body.find("  output", function), "  input source_span int 1..SOURCE\n");
    }
    const size_t launch = body.find("launch " + name, function);
    body.insert(body.find(")\n", launch), arguments);
  };
  const std::string span = takes_tokens ? ", read sources, source_span" : ", read sources, NUMBERS";
  change("prefill", ", ptr, i64", span);
  change("decode", ", ptr, i64", span);
  if (!has_pages) change("copy", ", ptr", ", both sources");
  std::string function = R"(
function encode {
  input source tensor SHAPE
  input slot int 0..2
  output count tensor i64 rank 1
  variant cpu {
    let n = COUNT
    buffer source of input bytes BYTES align 4
    buffer count of output bytes 8
    launch encode grid (1, 1, 1) (read source, both sources, n, slot, write count)
    return (tensor count i64 [1] [1])
  }
}
)";
  replace(function, "SHAPE", takes_tokens ? "i64 [1..SOURCE]" : "f32 [BINS, FRAMES]");
  replace(function, "COUNT", takes_tokens ? "size(source, 0)" : "NUMBERS");
  replace(function, "BYTES", takes_tokens ? "mul(n, 8)" : "mul(n, 4)");
  body.insert(body.find("function sample"), function);
  body.insert(body.find("state cache"),
              "kernel encode kernels \"" +
                  std::string(takes_tokens ? "encode_tokens" : "encode_features") +
                  "\" (ptr, ptr, i64, i64, ptr)\nstate sources i32 [SLOTS, ENTRIES] fill 0\n");
  replace(body, "ENTRIES", std::to_string(LM_SOURCE + 1));
  replace(body, "SOURCE", std::to_string(LM_SOURCE));
  replace(body, "NUMBERS", std::to_string(LM_BINS * LM_FRAMES));
  replace(body, "BINS", std::to_string(LM_BINS));
  replace(body, "FRAMES", std::to_string(LM_FRAMES));
}

// Gives the functions, with all that was added to them, tables of pages in place of spans.
void add_pages(std::string& body, const ModelFile& file) {
  const auto change = [&](const std::string& name, int span, bool is_prompt) {
    const size_t kernel = body.find("kernel " + name + " ");
    if (kernel == std::string::npos) return;
    const size_t quote = body.find('"', kernel);
    body.insert(body.find('"', quote + 1), "_paged");
    size_t parameter = body.find('(', kernel);
    for (int i = 0; i < span; ++i) parameter = body.find(", ", parameter + 1);
    body.insert(parameter, ", ptr");
    const size_t function = body.find("function " + name + " {");
    if (function == std::string::npos) return;
    const auto replace_next = [&](const std::string& text, const std::string& by) {
      body.replace(body.find(text, function), text.size(), by);
    };
    if (is_prompt) {
      replace_next("input span int 1..MOST", "input table tensor i64 [1..COLUMNS]");
      replace_next("check_le(add(position, n), span)", "let c = size(table, 0)");
    } else {
      replace_next("input span int 1..MOST", "input table tensor i64 [1..SLOTS, 1..COLUMNS]");
      replace_next("    buffer",
                   "    let c = size(table, 1)\n    check_eq(size(table, 0), n)\n    buffer");
    }
    replace_next("    buffer", "    buffer table of input bytes " +
                                   std::string(is_prompt ? "mul(c, 8)" : "mul(mul(n, c), 8)") +
                                   " align 8\n    buffer");
    replace_next(" span,", " read table, c,");
  };
  change("prefill", 5, true);
  change("prefill_images", 5, true);
  change("decode", 4, false);
  change("verify", 5, false);
  const bool has_rows = file.has_states || file.encoder;
  const size_t kernel = body.find("kernel copy ");
  body.replace(kernel, body.find('\n', kernel) - kernel,
               has_rows ? "kernel copy kernels \"copy_rows_paged\" (ptr, i64, i64, ptr, i64, i64, "
                          "ptr, i64)"
                        : "kernel copy kernels \"copy_paged\" (ptr, i64, i64, ptr)");
  replace(body, "ROWS_INPUT",
          has_rows ? "  input from_slot int 0..2\n  input slot int 0..2\n" : "");
  replace(body, "ROWS_ARGUMENT",
          file.has_states ? ", from_slot, slot, both log, WIDTH"
          : has_rows      ? ", from_slot, slot, both sources, " + std::to_string(LM_SOURCE + 1)
                          : "");
  const std::string state = "state cache i32 [SLOTS, WIDTH]";
  body.replace(body.find(state), state.size(), "state cache i32 [ALL, PAGE]");
}

// Gives the file states: rows of slots instead of a cache, or, with pages, beside it.
void add_states(std::string& body, bool has_pages) {
  for (const std::string name : {"prefill", "decode", "copy"}) {
    const std::string kind = has_pages ? "_held" : "_logged";
    const size_t kernel = body.find("kernel " + name + " ");
    body.replace(body.find("\"" + name + "\"", kernel), name.size() + 2, "\"" + name + kind + "\"");
    if (!has_pages || name == "copy") continue;
    body.insert(body.find(")\n", kernel), ", ptr");
    const size_t launch = body.find("launch " + name + " ");
    body.insert(body.find(")\n", launch), ", both log");
  }
  if (has_pages) body.insert(body.find("state cache"), "state log i32 [SLOTS, WIDTH] fill -1\n");
}

// The part of a text from `begin` to `end`, with both.
std::string part(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t first = text.find(begin);
  return text.substr(first, text.find(end, first) + end.size() - first);
}

// Gives the file the function `sample_few`.
void add_few(std::string& body) {
  std::string kernel = part(body, "kernel sample ", "\n"),
              function = part(body, "function sample {", "\n}\n");
  replace(kernel, "kernel sample ", "kernel few ");
  replace(kernel, "\"sample\"", "\"sample_few\"");
  replace(function, "function sample ", "function sample_few ");
  replace(function, "launch sample", "launch few");
  replace(body, "kernels \"sample\"", "kernels \"sample_many\"");
  body.insert(body.find("kernel sample "), kernel);
  body.insert(body.find("function sample {"), function);
}

// Gives the file the function `single`: `decode`, with all that was added to it, for one slot.
void add_single(std::string& body) {
  std::string kernel = part(body, "kernel decode ", "\n"),
              function = part(body, "function decode {", "\n}\n");
  replace(kernel, "kernel decode ", "kernel single ");
  kernel.insert(kernel.rfind('"'), "_single");
  kernel.insert(kernel.rfind(')'), ", i64");
  replace(function, "function decode", "function single");
  replace(function, "launch decode", "launch single");
  replace(function, "1..SLOTS", "1");
  const size_t positions = function.find("input positions");
  function.insert(function.find('\n', positions) + 1, "  input slot int 0..2\n");
  function.insert(function.find(")\n", function.find("launch single")), ", slot");
  body.insert(body.find("function sample"), function);
  body.insert(body.find("kernel decode "), kernel);
}

// Gives the file the kernels of device_model.c in place of those of language_model.c.
void put_on_device(std::string& body) {
  replace(body, "elf \"language_model.so\"", "cubin \"device_model.so\"");
  const std::string kernel = "\nkernel ", symbol = " kernels \"";
  for (size_t at = 0; (at = body.find(kernel, at)) != std::string::npos; at += kernel.size()) {
    body.insert(body.find(symbol, at) + symbol.size(), "device_");
    body.insert(body.find('\n', at + 1), " block 1 1 1");
  }
}

std::string hir(const ModelFile& file) {
  std::string head = "hir 1\nproducer \"test\"\n";
  head += file.on_device ? "target cpu cuda \"sm_90a\"\n"
                         : fmt::format("target cpu host \"{}\"\n", HUSK_TEST_ARCH);
  const auto add = [&](const char* name, const std::string& text) {
    head += fmt::format("user \"husk.text.{}\" {}\n", name, quoted(text));
  };
  if (file.is_model) {
    Json model = Json{{"architecture", "test"},       {"max_tokens", +LM_MOST},
                      {"slots", +LM_SLOTS},           {"chunk", +LM_CHUNK},
                      {"vocabulary", +LM_VOCABULARY}, {"ranked", +LM_RANKED}};
    if (file.has_verify) model["verify"] = +LM_VERIFIED;
    if (file.has_few) model["candidates"] = +LM_CANDIDATES;
    if (file.has_adapters) {
      model["adapters"] = +LM_ADAPTERS;
      model["adapter_rank"] = +LM_RANK;
    }
    if (file.has_states) model["states"] = true;
    if (file.pages) {
      model["pages"] = file.pages;
      model["page"] = file.page;
    }
    if (file.images) {
      Json image = {{"token", +LM_IMAGE},
                    {"shape", {+LM_WIDTH, +LM_IMAGE_ROWS}},
                    {"rows", +LM_IMAGE_ROWS},
                    {"width", +LM_WIDTH}};
      if (file.images == LM_TWO_WAY) image["two_way"] = true;
      if (file.images == LM_GRID) image["grid"] = {+LM_GRID_ROWS, +LM_GRID_COLUMNS};
      model["image"] = file.image_entry ? Json::parse(file.image_entry) : image;
    }
    if (file.encoder) {
      model["encoder"] = {{"positions", +LM_SOURCE}, {"start", {9, 10}}};
      if (file.encoder == LM_OF_FEATURES) {
        model["encoder"]["positions"] = LM_FRAMES / 2;
        model["encoder"]["shape"] = {+LM_BINS, +LM_FRAMES};
      }
      if (file.encoder_entry) model["encoder"] = Json::parse(file.encoder_entry);
    }
    add("model", model.dump());
  }
  add("generation", R"({"end": [256], "do_sample": true, "temperature": 0.5, "top_k": 9})");
  if (file.has_tokenizer) add("tokenizer", tokenizer());
  if (file.has_template) add("chat_template", "{{ messages }}");
  if (file.has_roles) add("roles", R"({"first":"","user":["U:","."],"assistant":["A:","."]})");
  std::string body = R"(
image kernels cpu elf "language_model.so"
kernel prefill kernels "prefill" (ptr, ptr, i64, i64, i64, i64, ptr, ptr)
kernel decode kernels "decode" (ptr, ptr, ptr, i64, i64, ptr, ptr)
kernel copy kernels "copy" (ptr, i64, i64, i64, i64, ptr)
kernel verify kernels "verify" (ptr, ptr, ptr, i64, i64, i64, ptr, ptr)
kernel adjust kernels "adjust" (ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, ptr)
kernel rank kernels "rank" (ptr, ptr, i64, ptr, ptr, ptr)
kernel sample kernels "sample" (ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, ptr, ptr)
state cache i32 [SLOTS, WIDTH] fill -1
function prefill {
  input tokens tensor i64 [1..CHUNK]
  input slot int 0..2
  input position int 0..95
  input span int 1..MOST
  output next tensor i64 rank 1
  output logits tensor f32 rank 2
  variant cpu {
    let n = size(tokens, 0)
    check_le(add(position, n), span)
    buffer tokens of input bytes mul(n, 8) align 8
    buffer next of output bytes 8
    buffer logits of output bytes ROW
    launch prefill grid (1, 1, 1) (read tokens, both cache, n, slot, position, span, write next,
      write logits)
    return (tensor next i64 [1] [1], tensor logits f32 [1, VOCABULARY] [VOCABULARY, 1])
  }
}
function decode {
  input tokens tensor i64 [1..SLOTS]
  input positions tensor i64 [1..SLOTS]
  input span int 1..MOST
  output next tensor i64 rank 1
  output logits tensor f32 rank 2
  variant cpu {
    let n = size(tokens, 0)
    check_eq(size(positions, 0), n)
    buffer tokens of input bytes mul(n, 8) align 8
    buffer positions of input bytes mul(n, 8) align 8
    buffer next of output bytes mul(n, 8)
    buffer logits of output bytes mul(n, ROW)
    launch decode grid (1, 1, 1) (read tokens, read positions, both cache, n, span, write next,
      write logits)
    return (tensor next i64 [n] [1], tensor logits f32 [n, VOCABULARY] [VOCABULARY, 1])
  }
}
COPY
CONTROLS
VERIFY
function sample {
  input logits tensor f32 [1..SLOTS, VOCABULARY]
  input temperature tensor f32 [1..SLOTS]
  input top_k tensor i64 [1..SLOTS]
  input top_p tensor f32 [1..SLOTS]
  input min_p tensor f32 [1..SLOTS]
  input seeds tensor i64 [1..SLOTS]
  input positions tensor i64 [1..SLOTS]
  output tokens tensor i64 rank 1
  output logprobs tensor f32 rank 1
  variant cpu {
    let n = size(logits, 0)
    buffer logits of input bytes mul(n, ROW) align 4
    buffer temperature of input bytes mul(n, 4) align 4
    buffer top_k of input bytes mul(n, 8) align 8
    buffer top_p of input bytes mul(n, 4) align 4
    buffer min_p of input bytes mul(n, 4) align 4
    buffer seeds of input bytes mul(n, 8) align 8
    buffer positions of input bytes mul(n, 8) align 8
    buffer tokens of output bytes mul(n, 8)
    buffer logprobs of output bytes mul(n, 4)
    launch sample grid (1, 1, 1) (read logits, read temperature, read top_k, read top_p, read min_p,
      read seeds, read positions, n, write tokens, write logprobs)
    return (tensor tokens i64 [n] [1], tensor logprobs f32 [n] [1])
  }
}
)";
  const char* copies = file.pages ? paged_copy_function : copy_function;
  body.replace(body.find("COPY\n"), 5, file.has_copy ? copies : "");
  body.replace(body.find("CONTROLS\n"), 9, file.has_controls ? control_functions : "");
  body.replace(body.find("VERIFY\n"), 7, file.has_verify ? verify_function : "");
  if (file.has_adapters) add_adapters(body);
  if (file.has_states) add_states(body, file.pages != 0);
  if (file.images) add_images(body, file.images);
  if (file.encoder) add_encoder(body, file.encoder, file.pages != 0);
  if (file.pages) add_pages(body, file);
  if (file.has_single) add_single(body);
  if (file.has_few) add_few(body);
  // The functions of logits take the rows of `verify`.
  if (file.has_verify) {
    const size_t sample = body.find("function sample");
    for (size_t at = sample; (at = body.find("1..SLOTS", at)) != std::string::npos;) {
      body.replace(at, 8, "1..ROWS");
    }
  }
  const std::pair<const char*, int> numbers[] = {{"ROWS", LM_SLOTS * LM_VERIFIED},
                                                 {"SLOTS", LM_SLOTS},
                                                 {"WIDTH", LM_MOST + 1},
                                                 {"CHUNK", LM_CHUNK},
                                                 {"MOST", LM_MOST},
                                                 {"WIDE", LM_WIDTH},
                                                 {"PATCHES", LM_IMAGE_ROWS},
                                                 {"PIXELS4", LM_IMAGE_ROWS * LM_WIDTH * 4},
                                                 {"ROW", LM_VOCABULARY * 4},
                                                 {"VOCABULARY", LM_VOCABULARY},
                                                 {"VERIFIED", LM_VERIFIED},
                                                 {"WORDS", LM_WORDS},
                                                 {"RANKED8", LM_RANKED * 8},
                                                 {"RANKED4", LM_RANKED * 4},
                                                 {"RANKED", LM_RANKED},
                                                 {"COLUMNS", LM_COLUMNS},
                                                 {"PAGES", file.pages},
                                                 {"PAGE", LM_PAGE},
                                                 {"ALL", file.pages + 1}};
  for (const auto& [name, number] : numbers) replace(body, name, std::to_string(number));
  if (file.on_device) put_on_device(body);
  return head + body;
}

// Bytes as UTF-8, with U+FFFD for what is wrong, as a decoder of Unicode does it.
std::string decoded(const std::string& bytes) {
  // nlohmann's writer replaces by the same rule; it puts quotes around the text and escapes some
  // characters, which reading takes back.
  const std::string json = Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(json).get<std::string>();
}

}  // namespace

std::vector<uint8_t> artifact_of(const ModelFile& file) {
  auto result = compiler::compile_text(hir(file),
                                       std::filesystem::path(HUSK_LANGUAGE_MODEL).parent_path());
  if (const auto* error = std::get_if<compiler::Error>(&result)) {
    throw std::runtime_error(compiler::describe(*error, "model.hir"));
  }
  return std::move(std::get<0>(result));
}

LoadedModel::LoadedModel(const ModelFile& file, const husk_port* port)
    : bytes_(nullptr, std::free) {
  const std::vector<uint8_t> artifact = artifact_of(file);
  bytes_.reset(std::aligned_alloc(64, (artifact.size() + 63) / 64 * 64));
  std::memcpy(bytes_.get(), artifact.data(), artifact.size());
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = port ? port : husk_port_host();
  options.allow_host_images = 1;
  husk_error error;
  husk_engine* engine = nullptr;
  check(husk_engine_create(&options, &engine, &error), error);
  engine_.reset(engine);
  husk_program* program = nullptr;
  check(
      husk_program_load(engine, bytes_.get(), artifact.size(), nullptr, nullptr, &program, &error),
      error);
  program_.reset(program);
}

Generator LoadedModel::generator(const husk_generator_options& options) const {
  husk_generator* generator = nullptr;
  husk_error error;
  check(create(options, &generator, &error), error);
  return Generator(generator);
}

Text right_text(const Wanted& wanted, uint32_t sample) {
  Text result;
  std::vector<int32_t> all = wanted.prompt, entries;
  for (size_t i = 0; i < all.size(); ++i) {
    const int32_t salt = wanted.salts.empty() ? wanted.salt : wanted.salts[i];
    entries.push_back(all[i] + LM_SALT * salt);
  }
  std::string bytes;
  const size_t prompt = all.size();
  while (true) {
    float logits[LM_VOCABULARY], adjusted[LM_VOCABULARY];
    lm_logits_after(entries.data(), static_cast<int64_t>(entries.size()), logits);
    int64_t whole[LM_VOCABULARY] = {}, after[LM_VOCABULARY] = {};
    for (size_t i = 0; i < all.size(); ++i) {
      ++whole[all[i]];
      after[all[i]] += i >= prompt;
    }
    for (int32_t t = 0; t < LM_VOCABULARY; ++t) {
      adjusted[t] = lm_adjusted(logits[t], whole[t], after[t], wanted.repetition, wanted.presence,
                                wanted.frequency);
      if (wanted.mask && !is_allowed(wanted.mask, result.tokens.size(), t)) adjusted[t] = -1e9f;
    }
    const int32_t token = lm_drawn(
        adjusted, wanted.temperature, wanted.top_k, wanted.top_p > 0 ? wanted.top_p : 1,
        wanted.min_p, wanted.seed + static_cast<int64_t>(sample), static_cast<int64_t>(all.size()));
    all.push_back(token);
    entries.push_back(token + LM_SALT * wanted.salt);
    result.tokens.push_back(token);
    result.logits.push_back(logits[token]);
    if (token < 256) bytes += static_cast<char>(token);
    const bool is_last = token == LM_END || all.size() > LM_MOST ||
                         all.size() - prompt == wanted.most;
    const std::string text = decoded(bytes);  // stop texts are ASCII
    size_t stop = text.size();
    for (const std::string& one : wanted.stops) stop = std::min(stop, text.find(one));
    if (stop < text.size()) {
      result.text = text.substr(0, stop);
      result.reason = HUSK_TEXT_STOP;
      return result;
    }
    if (!is_last) continue;
    result.text = text;
    result.reason = token == LM_END ? HUSK_TEXT_END : HUSK_TEXT_LENGTH;
    return result;
  }
}

}  // namespace husk::test
