#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <husk/text.h>

#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::json;
using Tokens = std::vector<int32_t>;

struct Release {
  void operator()(husk_tokenizer* tokenizer) const { husk_tokenizer_release(tokenizer); }
  void operator()(husk_text_decoder* decoder) const { husk_text_decoder_release(decoder); }
};
using Tokenizer = std::unique_ptr<husk_tokenizer, Release>;
using Decoder = std::unique_ptr<husk_text_decoder, Release>;

const Json& golden() {
  static const Json json = Json::parse(std::ifstream(HUSK_GOLDEN));
  return json;
}

// The tokenizer.json of a kind in the golden table.
Json of_kind(const std::string& kind) {
  const Json& row = golden().at("kinds").at(kind);
  Json json = golden().at(row.at("base"));
  for (const auto& [name, value] : row.at("fields").items()) json[name] = value;
  for (const auto& [name, value] : row.at("model").items()) json["model"][name] = value;
  return json;
}

Tokenizer make(const Json& json) {
  const std::string text = json.dump();
  husk_tokenizer* tokenizer = nullptr;
  husk_error error;
  EXPECT_EQ(husk_tokenizer_create(text.data(), text.size(), &tokenizer, &error), HUSK_OK)
      << error.text;
  return Tokenizer(tokenizer);
}

Tokens encode(const Tokenizer& tokenizer, const std::string& text, uint32_t options = 0) {
  Tokens tokens(text.size() + 8);
  size_t count = 0;
  husk_error error;
  EXPECT_EQ(husk_tokenizer_encode(tokenizer.get(), text.data(), text.size(), options, tokens.data(),
                                  tokens.size(), &count, &error),
            HUSK_OK)
      << error.text;
  tokens.resize(count);
  return tokens;
}

Decoder decoder_of(const Tokenizer& tokenizer, uint32_t options = 0) {
  husk_text_decoder* decoder = nullptr;
  EXPECT_EQ(husk_text_decoder_create(tokenizer.get(), options, &decoder, nullptr), HUSK_OK);
  return Decoder(decoder);
}

std::string push(const Decoder& decoder, int32_t token) {
  const char* text = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(husk_text_decoder_push(decoder.get(), token, &text, &bytes, nullptr), HUSK_OK);
  return {text, bytes};
}

std::string finish(const Decoder& decoder) {
  const char* text = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(husk_text_decoder_finish(decoder.get(), &text, &bytes, nullptr), HUSK_OK);
  return {text, bytes};
}

std::string decode(const Tokenizer& tokenizer, const Tokens& tokens, uint32_t options = 0) {
  const Decoder decoder = decoder_of(tokenizer, options);
  std::string text;
  for (const int32_t token : tokens) text += push(decoder, token);
  return text + finish(decoder);
}

// The message with which a tokenizer is refused.
std::string refused(const std::string& text, husk_status expected) {
  husk_tokenizer* tokenizer = nullptr;
  husk_error error;
  EXPECT_EQ(husk_tokenizer_create(text.data(), text.size(), &tokenizer, &error), expected) << text;
  EXPECT_EQ(tokenizer, nullptr);
  return error.text;
}

class Kinds : public testing::TestWithParam<std::string> {};

TEST_P(Kinds, have_the_tokens_of_the_package_tokenizers) {
  const Tokenizer tokenizer = make(of_kind(GetParam()));
  for (const Json& one : golden().at("kinds").at(GetParam()).at("cases")) {
    const std::string text = one.at("text");
    const Tokens tokens = one.at("tokens").get<Tokens>();
    EXPECT_EQ(encode(tokenizer, text), tokens) << text;
    EXPECT_EQ(encode(tokenizer, text, HUSK_TEXT_ADD_SPECIAL), one.value("with_special", tokens))
        << text;
    EXPECT_EQ(decode(tokenizer, tokens), one.value("decoded", text));
  }
}

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const auto& [name, row] : golden().at("kinds").items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(all, Kinds, testing::ValuesIn(kinds()), [](const auto& one) {
  std::string name = one.param;
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name;
});

TEST(Tokenizer, gives_whole_characters_as_tokens_come) {
  const Tokenizer tokenizer = make(of_kind("gpt-2"));
  const std::string text = "a\U0001F600b";
  const Decoder decoder = decoder_of(tokenizer);
  std::string whole;
  int empty = 0;
  for (const int32_t token : encode(tokenizer, text)) {
    const std::string part = push(decoder, token);
    empty += part.empty();
    whole += part;
  }
  EXPECT_GT(empty, 0);  // the bytes of the second character are tokens of their own
  EXPECT_EQ(whole + finish(decoder), text);
  const Tokens emoji = encode(tokenizer, "\U0001F600");
  ASSERT_GT(emoji.size(), 1u);
  EXPECT_EQ(push(decoder, emoji[0]), "");
  EXPECT_EQ(finish(decoder), "\uFFFD");
  EXPECT_EQ(finish(decoder), "");
}

TEST(Tokenizer, tokens_of_bytes_become_characters_as_they_come) {
  const Tokenizer tokenizer = make(of_kind("llama"));
  const Tokens tokens = encode(tokenizer, "\U0001F600");
  ASSERT_EQ(tokens.size(), 5u);  // the space before the text, and four bytes
  const Decoder decoder = decoder_of(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t token : tokens) parts.push_back(push(decoder, token));
  EXPECT_EQ(parts, (std::vector<std::string>{"", "", "", "", "\U0001F600"}));
  EXPECT_EQ(finish(decoder), "");
  // A character that was cut, and another sequence, which has a beginning of its own.
  push(decoder, tokens[1]);
  EXPECT_EQ(finish(decoder), "\uFFFD");
  EXPECT_EQ(push(decoder, tokens[0]), "");
  EXPECT_EQ(push(decoder, tokens[0]), " ");
}

TEST(Tokenizer, normalizers_change_texts) {
  const auto tokens_of = [](const Json& normalizer, const std::string& text) {
    Json json = of_kind("llama");
    json["normalizer"] = normalizer;
    return encode(make(json), text);
  };
  const Json none;
  const auto form = [](const char* name) { return Json{{"type", name}}; };
  EXPECT_EQ(tokens_of(form("NFD"), "\u00E9"), tokens_of(none, "e\u0301"));
  EXPECT_EQ(tokens_of(form("NFC"), "e\u0301"), tokens_of(none, "\u00E9"));
  EXPECT_EQ(tokens_of(form("NFKC"), "\uFB01\u2460"), tokens_of(none, "fi1"));
  EXPECT_EQ(tokens_of(form("NFKD"), "\uFB01\u00E9"), tokens_of(none, "fie\u0301"));
  EXPECT_EQ(tokens_of(form("Lowercase"), "AB\u0130"), tokens_of(none, "abi\u0307"));
  EXPECT_EQ(
      tokens_of({{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}}, "aabaca"),
      tokens_of(none, "bc"));
}

TEST(Tokenizer, a_map_has_rows_for_characters_that_are_seen_as_one) {
  const Tokenizer tokenizer = make(of_kind("xlm_r"));
  EXPECT_EQ(encode(tokenizer, "ae\u0301"), encode(tokenizer, "a\u00E9"));
  EXPECT_NE(encode(tokenizer, "ae\u0301"), encode(tokenizer, "ae"));
  EXPECT_EQ(encode(tokenizer, "a\u00ADb"), encode(tokenizer, "ab"));
}

TEST(Tokenizer, an_unknown_character_is_worse_than_any_token) {
  Json json = of_kind("t5");
  json["normalizer"] = json["pre_tokenizer"] = nullptr;
  json["added_tokens"] = json["post_processor"] = nullptr;
  json["model"]["vocab"] = Json::parse(R"([["<unk>", 0], ["a", -1], ["ab", -5]])");
  json["model"]["unk_id"] = 0;
  EXPECT_EQ(encode(make(json), "abaxxa"), (Tokens{2, 1, 0, 1}));
}

TEST(Tokenizer, special_tokens_may_be_plain_text_and_left_out) {
  const Tokenizer tokenizer = make(of_kind("gpt-2"));
  const std::string text = "a<|im_end|>b";
  const Tokens tokens = encode(tokenizer, text), plain = encode(tokenizer, text, HUSK_TEXT_PLAIN);
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_TRUE(husk_tokenizer_is_special(tokenizer.get(), tokens[1]));
  EXPECT_GT(plain.size(), 3u);
  EXPECT_EQ(decode(tokenizer, plain), text);
  EXPECT_EQ(decode(tokenizer, tokens, HUSK_TEXT_SKIP_SPECIAL), "ab");
  size_t bytes = 0;
  const char* found = husk_tokenizer_token(tokenizer.get(), tokens[1], &bytes);
  EXPECT_EQ(std::string(found, bytes), "<|im_end|>");
}

TEST(Tokenizer, the_longest_of_added_tokens_is_found) {
  Json json = of_kind("gpt-2");
  for (const auto& [content, id] : {std::pair("<a>", 1000), {"<a><b>", 1001}, {"<a><b", 1002}}) {
    json["added_tokens"].push_back({{"content", content}, {"id", id}});
  }
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(encode(tokenizer, "<a><b><a><b<a>"), (Tokens{1001, 1002, 1000}));
  EXPECT_EQ(husk_tokenizer_size(tokenizer.get()), 1003u);
}

TEST(Tokenizer, words_of_the_vocabulary_come_before_rules_if_the_file_says_so) {
  Json json = of_kind("gpt-2");
  json["model"]["vocab"]["zqxj"] = 1000;  // which no rule makes
  EXPECT_EQ(encode(make(json), "zqxj").size(), 4u);
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(make(json), "zqxj"), Tokens{1000});
}

TEST(Tokenizer, counts_tokens_that_do_not_fit) {
  const Tokenizer tokenizer = make(of_kind("gpt-2"));
  size_t count = 0;
  int32_t token[2] = {-1, -1};
  EXPECT_EQ(husk_tokenizer_encode(tokenizer.get(), "q w e", 5, 0, token, 1, &count, nullptr),
            HUSK_OK);
  EXPECT_GE(count, 3u);
  EXPECT_GE(token[0], 0);
  EXPECT_EQ(token[1], -1);
}

TEST(Tokenizer, names_the_place_of_bytes_that_are_no_utf8) {
  const Tokenizer tokenizer = make(of_kind("gpt-2"));
  for (const std::string text : {"abc\xff", "abc\xe2\x82", "abc\xed\xa0\x80", "abc\xc0\x80"}) {
    size_t count = 0;
    husk_error error;
    EXPECT_EQ(husk_tokenizer_encode(tokenizer.get(), text.data(), text.size(), 0, nullptr, 0,
                                    &count, &error),
              HUSK_INVALID_INPUT);
    EXPECT_EQ(std::string(error.text).rfind("the text is no UTF-8: byte 3 is 0x", 0), 0u);
  }
}

TEST(Tokenizer, a_word_without_end_takes_no_time) {
  const Tokenizer tokenizer = make(of_kind("gpt-2"));
  EXPECT_EQ(decode(tokenizer, encode(tokenizer, std::string(200000, 'a'))).size(), 200000u);
}

TEST(Tokenizer, refuses_kinds_by_name) {
  const auto without = [](auto change) {
    Json json = of_kind("gpt-2");
    change(json);
    return refused(json.dump(), HUSK_UNSUPPORTED);
  };
  EXPECT_EQ(without([](Json& json) { json["model"]["type"] = "WordLevel"; }),
            "the model of the tokenizer is of the kind 'WordLevel', which Husk lacks: it has BPE, "
            "Unigram and WordPiece");
  EXPECT_EQ(without([](Json& json) { json["normalizer"] = {{"type", "Nmt"}}; }),
            "the normalizer of the tokenizer is of the kind 'Nmt', which Husk lacks");
  EXPECT_EQ(without([](Json& json) { json["pre_tokenizer"] = {{"type", "Whitespace"}}; }),
            "the tokenizer splits texts by 'Whitespace', which Husk lacks");
  EXPECT_NE(
      without([](Json& json) { json["model"]["byte_fallback"] = true; }).find("byte_fallback"),
      std::string::npos);
  EXPECT_EQ(without([](Json& json) { json["decoder"] = nullptr; }),
            "the tokenizer has no decoder, which Husk needs to make texts of tokens");
  EXPECT_EQ(without([](Json& json) { json["decoder"] = {{"type", "CTC"}}; }),
            "the decoder of the tokenizer has a step of the kind 'CTC' that Husk lacks");
  EXPECT_EQ(
      without([](Json& json) { json["decoder"] = {{"type", "Metaspace"}, {"replacement", "_"}}; }),
      "only one of the pre_tokenizer and the decoder of the tokenizer is ByteLevel");
  EXPECT_EQ(without([](Json& json) { json["model"]["type"] = "Unigram"; }),
            "the tokenizer has ByteLevel, but no BPE");
  EXPECT_NE(without([](Json& json) {
              json["post_processor"] = {{"type", "OtherProcessing"}};
            }).find("OtherProcessing"),
            std::string::npos);
  EXPECT_NE(without([](Json& json) {
              json["pre_tokenizer"]["pretokenizers"].insert(
                  json["pre_tokenizer"]["pretokenizers"].begin(),
                  Json{{"type", "Split"},
                       {"pattern", {{"Regex", "[a&&b]"}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
            }).find("&&"),
            std::string::npos);
}

// The file of a tokenizer that splits by this pattern.
std::string split_by(const char* pattern) {
  Json json = of_kind("qwen2");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
  return json.dump();
}

TEST(Tokenizer, refuses_patterns_that_leave_the_characters) {
  // PCRE2 reads beyond a pattern that is no UTF-8.
  std::string file = split_by("(?i:'MARK)|.");
  const size_t place = file.find("MARK");
  file.replace(place, 4, 52, '\xFF');
  EXPECT_EQ(refused(file, HUSK_INVALID_FILE),
            "the JSON is wrong at byte " + std::to_string(place) + ": expected UTF-8");
  EXPECT_EQ(refused(split_by("\\C"), HUSK_UNSUPPORTED),
            "the tokenizer splits by a pattern that PCRE2 refuses: using \\C is disabled by the "
            "application");
}

TEST(Tokenizer, refuses_other_models_that_lack_a_part) {
  const auto without = [](const char* kind, auto change) {
    Json json = of_kind(kind);
    change(json);
    return refused(json.dump(), HUSK_INVALID_FILE);
  };
  EXPECT_EQ(without("t5", [](Json& json) { json["model"]["vocab"].push_back({"x"}); }),
            "the tokenizer lacks the text or the score of a token");
  EXPECT_EQ(without("bert", [](Json& json) { json["model"]["unk_token"] = "none"; }),
            "the tokenizer lacks the prefix, the longest word or the unknown token of its "
            "WordPiece");
  EXPECT_EQ(without("bert", [](Json& json) { json["post_processor"]["cls"][1] = -1; }),
            "the tokenizer lacks a token of its post_processor");
  // A map of characters that is wrong anywhere is refused or gives some text.
  const Json right = of_kind("xlm_r");
  const std::string map = right["normalizer"]["precompiled_charsmap"];
  const std::string text = "A\uFF21e\u0301\u00AD\u3000x";
  for (size_t i = 0; i < map.size(); i += 13) {
    for (const std::string& changed :
         {map.substr(0, i), map.substr(0, i) + "/" + map.substr(i + 1)}) {
      Json json = right;
      json["normalizer"]["precompiled_charsmap"] = changed;
      const std::string source = json.dump();
      husk_tokenizer* tokenizer = nullptr;
      husk_error error;
      if (husk_tokenizer_create(source.data(), source.size(), &tokenizer, &error) != HUSK_OK) {
        EXPECT_EQ(error.code, HUSK_INVALID_FILE);
        continue;
      }
      encode(Tokenizer(tokenizer), text);
    }
  }
}

TEST(Tokenizer, refuses_files_that_lack_a_part) {
  const auto without = [](auto change) {
    Json json = of_kind("llama-bpe");
    change(json);
    return refused(json.dump(), HUSK_INVALID_FILE);
  };
  EXPECT_EQ(refused("", HUSK_INVALID_FILE), "the JSON is wrong at byte 0: expected a value");
  EXPECT_EQ(refused("{}", HUSK_INVALID_FILE), "the tokenizer lacks a model");
  EXPECT_EQ(without([](Json& json) { json["model"].erase("vocab"); }),
            "the tokenizer lacks its vocabulary");
  EXPECT_EQ(without([](Json& json) { json["model"]["merges"].push_back("no"); }),
            "the tokenizer lacks a space in a rule");
  EXPECT_NE(without([](Json& json) { json["model"]["merges"].push_back("q zz"); }).find("'q' and"),
            std::string::npos);
  EXPECT_EQ(without([](Json& json) { json["model"]["vocab"]["x"] = -1; }),
            "the tokenizer lacks a small number");
  EXPECT_EQ(without([](Json& json) { json["post_processor"]["special_tokens"].clear(); }),
            "the tokenizer lacks a token of its template");
  // A file that was cut off anywhere.
  const std::string text = of_kind("qwen2").dump();
  for (size_t bytes = 0; bytes < text.size(); bytes += 97) {
    refused(text.substr(0, bytes), HUSK_INVALID_FILE);
  }
}

TEST(Tokenizer, null_arguments) {
  husk_tokenizer* tokenizer = nullptr;
  EXPECT_EQ(husk_tokenizer_create("{}", 2, nullptr, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_tokenizer_create(nullptr, 0, &tokenizer, nullptr), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_tokenizer_size(nullptr), 0u);
  const Tokenizer gpt_2_tokenizer = make(of_kind("gpt-2"));
  size_t count;
  EXPECT_EQ(husk_tokenizer_encode(gpt_2_tokenizer.get(), "", 0, 8, nullptr, 0, &count, nullptr),
            HUSK_INVALID_ARGUMENT);
  const Decoder decoder = decoder_of(gpt_2_tokenizer);
  const char* text;
  EXPECT_EQ(husk_text_decoder_push(decoder.get(), -1, &text, &count, nullptr), HUSK_INVALID_INPUT);
  EXPECT_EQ(husk_text_decoder_push(decoder.get(), 1 << 20, &text, &count, nullptr),
            HUSK_INVALID_INPUT);
  EXPECT_EQ(husk_tokenizer_token(gpt_2_tokenizer.get(), -1, &count), nullptr);
  husk_tokenizer_release(nullptr);
  husk_text_decoder_release(nullptr);
}

}  // namespace
