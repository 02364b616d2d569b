// Runs the fuzzer of tokenizers without libFuzzer, on the tokenizers of tests/text/golden.json, an
// entry about sound, and mutants of them, which a fixed seed determines: parts of the JSON are
// removed, repeated, moved and replaced by those of other tokenizers, and numbers, characters and
// bytes change. The texts are those of golden.json and mutants of them. With FOLDER, the program
// writes the tokenizers there, as seeds of libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Json = nlohmann::json;

std::mt19937 random_source(1);
size_t pick(size_t n) { return random_source() % n; }

// All values of a JSON that others may replace, the inner ones more often than their number says.
Json& any_part(Json& json) {
  Json* at = &json;
  for (size_t depth = pick(6); depth && at->is_structured() && !at->empty(); --depth) {
    auto child = at->begin();
    std::advance(child, static_cast<ptrdiff_t>(pick(at->size())));
    at = &*child;
  }
  return *at;
}

void change(Json& json, Json& other) {
  Json& part = any_part(json);
  switch (pick(6)) {
    case 0: part = any_part(other); break;
    case 1: part = nullptr; break;
    case 2:
      if (part.is_structured() && !part.empty()) {
        auto child = part.begin();
        std::advance(child, static_cast<ptrdiff_t>(pick(part.size())));
        part.erase(child);
      }
      break;
    case 3: {
      static const double numbers[] = {-1, 0, 1, 3.5, 255, 256, 4294967296.0, 1e300, -1e300};
      part = numbers[pick(std::size(numbers))];
      break;
    }
    case 4: {
      static const char* const texts[] = {"",       "a",      "(a+)+$", "[",      "\xEF\xBF\xBD",
                                          "\\p{L}", "(?<=a)", "\n",     "<0xFF>", "#"};
      part = texts[pick(std::size(texts))];
      break;
    }
    default:
      if (part.is_string()) {
        auto& text = part.get_ref<std::string&>();
        text.insert(pick(text.size() + 1), 1, static_cast<char>(pick(128)));
      } else if (part.is_boolean()) {
        part = !part.get<bool>();
      } else {
        Json copy = part;
        any_part(json) = std::move(copy);
      }
  }
}

// Changes bytes, often in the middle of characters.
std::string changed(std::string text) {
  for (size_t n = pick(4); n && !text.empty(); --n) {
    const size_t at = pick(text.size());
    if (pick(2))
      text[at] = static_cast<char>(random_source());
    else
      text.insert(at, text.substr(pick(text.size()), pick(30)));
  }
  return text;
}

void run(const std::string& file, const std::string& text) {
  const std::string input = file + '\0' + text;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTANTS golden.json [FOLDER]\n", argv[0]);
    return 2;
  }
  const int mutants = std::atoi(argv[1]);
  std::ifstream stream(argv[2]);
  const Json golden = Json::parse(stream);
  std::vector<Json> tokenizers;
  std::vector<std::string> texts;
  for (const auto& [name, kind] : golden["kinds"].items()) {
    Json fields = golden[kind["base"].get<std::string>()];
    fields.update(kind["fields"]);
    fields["model"].update(kind["model"]);
    tokenizers.push_back(fields);
    for (const Json& one : kind["cases"]) texts.push_back(one["text"]);
  }
  tokenizers.push_back(Json::parse(R"({"rate":16000,"samples":480,"window":60,"hop":16,)"
                                   R"("filters":[[0,0.5,1.5,0.25],[2],[3,1,1e-3],[29,0.125,2]]})"));
  for (const Json& one : tokenizers) {
    const std::string whole = one.dump();
    for (const std::string& text : texts) run(whole, text);
    if (argc > 3) {
      const auto number = std::to_string(&one - tokenizers.data());
      std::ofstream(std::string(argv[3]) + "/golden" + number, std::ios::binary)
          << whole << '\0' << texts[0] << texts[3];
    }
    for (int n = 0; n < mutants; ++n) {
      Json file = one;
      for (size_t i = pick(3); i; --i) change(file, tokenizers[pick(tokenizers.size())]);
      std::string json = file.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (pick(8) == 0) json = changed(json);
      run(json, changed(texts[pick(texts.size())]));
    }
  }
  std::printf("%zu tokenizers with %d mutants each\n", tokenizers.size(), mutants);
  return 0;
}
