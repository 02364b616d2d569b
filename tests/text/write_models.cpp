// Writes files of the language model for tests, for the bindings of other languages:
//
//   husk_text_models FOLDER
//
// `tokens.husk` has an encoder of tokens, `features.husk` one of features. `texts.txt` has a row
// for each text: the name of the file; the input of the encoder; the tokens with which the decoder
// begins, or nothing for those of the file; and the tokens of the right text. A bar stands between
// these, and spaces between numbers.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "loaded_model.h"

namespace {

using namespace husk::test;

std::string joined(const std::vector<int32_t>& numbers) {
  std::string text;
  for (const int32_t number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string row(const std::string& name, const std::vector<int32_t>& source,
                const std::vector<int32_t>& decoder) {
  Wanted wanted;
  wanted.prompt = decoder.empty() ? std::vector<int32_t>{9, 10} : decoder;
  wanted.most = 12;
  wanted.salt = lm_source_salt(source.data(), static_cast<int64_t>(source.size()));
  const Text text = right_text(wanted);
  return name + "|" + joined(source) + "|" + joined(decoder) + "|" + joined(text.tokens) + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: husk_text_models FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  std::ofstream texts(folder + "texts.txt");
  for (const int kind : {+LM_OF_TOKENS, +LM_OF_FEATURES}) {
    ModelFile file;
    file.has_verify = false;
    file.encoder = kind;
    const std::string name = kind == LM_OF_TOKENS ? "tokens" : "features";
    const std::vector<uint8_t> bytes = artifact_of(file);
    std::ofstream out(folder + name + ".husk", std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    for (const int first : {1, 2, 3}) {
      std::vector<int32_t> source(kind == LM_OF_TOKENS ? 5 + static_cast<size_t>(first)
                                                       : LM_BINS * LM_FRAMES);
      for (size_t i = 0; i < source.size(); ++i) source[i] = first * 17 + static_cast<int32_t>(i);
      texts << row(name, source, {}) << row(name, source, {first, 7, 8});
    }
    out.flush();
    if (!out) return 1;
  }
  texts.flush();
  return texts ? 0 : 1;
}
