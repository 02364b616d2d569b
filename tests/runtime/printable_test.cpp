// Texts of files in messages: husk/detail/printable.h, and errors of the runtime that contain them.
#include <gtest/gtest.h>

#include <string>

#include <husk/detail/printable.h>

#include "base/status.h"

namespace husk {
namespace {

std::string printable(const std::string& text, size_t room = 200) {
  std::string out(room, '?');
  detail::write_printable(text.c_str(), out.data(), room);
  return out.c_str();
}

TEST(Printable, LettersStay) {
  for (const char* text : {"", "a name", "\\ \" %s", "é ß Ж 漢 😀", "\u00a0\u07ff\u0800\uffff"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EverythingElseIsEscaped) {
  EXPECT_EQ(printable("a\x1b[31m\n\t\x7f"), "a\\x1b[31m\\x0a\\x09\\x7f");
  EXPECT_EQ(printable("\xc2\x80\xc2\x9b"), "\\xc2\\x80\\xc2\\x9b");  // U+0080, U+009B
  EXPECT_EQ(printable("\xe2\x80\xa8\xe2\x80\xae"), "\\xe2\\x80\\xa8\\xe2\\x80\\xae");
  EXPECT_EQ(printable("\xe2\x81\xa6"), "\\xe2\\x81\\xa6");
  EXPECT_EQ(printable("\xff\x80z"), "\\xff\\x80z");                           // no first byte
  EXPECT_EQ(printable("\xc3z\xe2\x82"), "\\xc3z\\xe2\\x82");                  // cut letters
  EXPECT_EQ(printable("\xc0\xaf\xe0\x80\xaf"), "\\xc0\\xaf\\xe0\\x80\\xaf");  // too long
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");                    // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80\xf5"), "\\xf4\\x90\\x80\\x80\\xf5");  // too large
  EXPECT_EQ(printable("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
}

TEST(Printable, WhatDoesNotFitIsLeftOutAsAWholeLetter) {
  EXPECT_EQ(printable("abcdef", 4), "abc");
  EXPECT_EQ(printable("abé", 4), "ab");
  EXPECT_EQ(printable("abé", 5), "abé");
  EXPECT_EQ(printable("a\x01", 5), "a");
  EXPECT_EQ(printable("a\x01", 6), "a\\x01");
  EXPECT_EQ(printable("a", 1), "");
}

TEST(Printable, ErrorsOfTheRuntime) {
  husk_error error = {};
  (void)fail(&error, HUSK_INVALID_FILE, "kernel '%s'", "\x1b]0;title\x07\xff");
  EXPECT_STREQ(error.text, "kernel '\\x1b]0;title\\x07\\xff'");
  prefix(&error, "function '%s': ", "\n");
  EXPECT_STREQ(error.text, "function '\\x0a': kernel '\\x1b]0;title\\x07\\xff'");
  const std::string many(2 * sizeof(error.text), '\x1b');
  (void)invalid_file(&error, "%s", many.c_str());
  EXPECT_EQ(std::string(error.text).size() % 4, 0u);
  prefix(&error, "%s", many.c_str());
  EXPECT_EQ(std::string(error.text).substr(0, 8), "\\x1b\\x1b");
  prefix(nullptr, "nothing");
}

}  // namespace
}  // namespace husk
