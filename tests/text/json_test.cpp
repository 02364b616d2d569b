#include "text/json.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using husk::text::Json;
using husk::text::JsonKind;
using husk::text::Span;

std::string string_of(const Json& json) {
  const Span text = json.text(json.root());
  return {text.data, text.size};
}

bool parses(Json& json, const std::string& text) {
  return !husk::failed(json.parse({text.data(), text.size()}, nullptr));
}

TEST(Json, texts_and_numbers) {
  Json json;
  ASSERT_TRUE(parses(json, R"( "a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é" )"));
  EXPECT_EQ(string_of(json), "a\"\\/\b\f\n\r\té\U0001F600é");
  for (const auto& [text, number] :
       {std::pair("0", 0.0),
        {"-12", -12.0},
        {"1.5", 1.5},
        {"25e2", 2500.0},
        {"25E-1", 2.5},
        {"123456789012345678901234567890", 123456789012345678901234567890.0},
        {"-3.4020767211914062", -3.4020767211914062},
        {"1e-400", 0.0}}) {
    ASSERT_TRUE(parses(json, text)) << text;
    EXPECT_DOUBLE_EQ(json.root()->number, number);
  }
}

TEST(Json, members) {
  Json json;
  ASSERT_TRUE(parses(json, R"({"a":[1,[2,3],{}],"b":null,"c":{"d":true},"e":"f"})"));
  const auto* root = json.root();
  const auto* list = json.member(root, "a");
  ASSERT_TRUE(list && list->kind == JsonKind::array);
  EXPECT_EQ(list->number, 3);
  int count = 0;
  for (const auto* one = json.first(list); one != json.end(list); one = json.after(one)) ++count;
  EXPECT_EQ(count, 3);
  EXPECT_EQ(json.member(root, "b"), nullptr);
  EXPECT_TRUE(json.has_true(json.member(root, "c"), "d"));
  EXPECT_TRUE(json.has_text(root, "e", "f"));
  EXPECT_EQ(json.member(json.member(root, "e"), "x"), nullptr);
}

TEST(Json, refuses_what_is_no_json) {
  for (const char* text : {"", "{", "[1,", "[1 2]", "{1:2}", "{\"a\" 1}", "\"abc", "\"\\x\"",
                           "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "tru",
                           "-", "1 1", "{\"a\":1,}", "]", "\"\xff\"", "[]\xc3"}) {
    Json json;
    EXPECT_FALSE(parses(json, text)) << text;
  }
  Json json;
  EXPECT_FALSE(parses(json, std::string(100, '[') + std::string(100, ']')));
  EXPECT_TRUE(parses(json, std::string(20, '[') + std::string(20, ']')));
}

}  // namespace
