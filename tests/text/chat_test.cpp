#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include <husk/text.h>

namespace {

struct Release {
  void operator()(husk_chat* chat) const { husk_chat_release(chat); }
};
using Chat = std::unique_ptr<husk_chat, Release>;

Chat make(const char* json) {
  husk_chat* chat = nullptr;
  husk_error error;
  EXPECT_EQ(husk_chat_create(json, std::strlen(json), &chat, &error), HUSK_OK) << error.text;
  return Chat(chat);
}

husk_status add(const Chat& chat, const char* role, const std::string& text,
                husk_error* error = nullptr) {
  return husk_chat_add(chat.get(), role, text.data(), text.size(), error);
}

std::string text_of(const Chat& chat) {
  const char* text = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(husk_chat_text(chat.get(), &text, &bytes, nullptr), HUSK_OK);
  return {text, bytes};
}

constexpr const char* roles = R"({"first":"<begin>","system":["<s>","</s>"],"user":["<u>","</u>"],)"
                              R"("assistant":["<a>","</a>"],"trim":false})";

TEST(Chat, has_prefixes_and_suffixes) {
  const Chat chat = make(roles);
  EXPECT_EQ(add(chat, "user", " hi\n"), HUSK_OK);
  EXPECT_EQ(text_of(chat), "<begin><u> hi\n</u><a>");
  EXPECT_EQ(add(chat, "assistant", "yes"), HUSK_OK);
  EXPECT_EQ(add(chat, "user", ""), HUSK_OK);
  EXPECT_EQ(text_of(chat), "<begin><u> hi\n</u><a>yes</a><u></u><a>");
  husk_chat_clear(chat.get());
  EXPECT_EQ(add(chat, "system", "short"), HUSK_OK);
  EXPECT_EQ(add(chat, "user", "hi"), HUSK_OK);
  EXPECT_EQ(text_of(chat), "<s>short</s><u>hi</u><a>");
}

TEST(Chat, trims_if_the_template_does) {
  const Chat chat = make(R"({"user":["",""],"assistant":["",""],"trim":true})");
  EXPECT_EQ(add(chat, "user", " \n hi there\t"), HUSK_OK);
  EXPECT_EQ(text_of(chat), "hi there");
}

TEST(Chat, refuses_roles_by_name) {
  husk_error error;
  const Chat chat = make(R"({"first":"","system":null,"user":["",""],"assistant":["",""]})");
  EXPECT_EQ(add(chat, "system", "x", &error), HUSK_UNSUPPORTED);
  EXPECT_STREQ(error.text, "the chat of this model has no messages of the role 'system'");
  EXPECT_EQ(add(chat, "tool", "x", &error), HUSK_UNSUPPORTED);
  const Chat other = make(roles);
  EXPECT_EQ(add(other, "user", "x"), HUSK_OK);
  EXPECT_EQ(add(other, "system", "x", &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(other), "<begin><u>x</u><a>");
  husk_chat* none = nullptr;
  EXPECT_EQ(husk_chat_create("{}", 2, &none, &error), HUSK_INVALID_FILE);
  EXPECT_STREQ(error.text, "the chat lacks the roles 'user' and 'assistant'");
  husk_chat_release(nullptr);
}

}  // namespace
