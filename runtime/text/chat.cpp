#include <initializer_list>

#include <husk/text.h>

#include "text/json.h"

using husk::fail;
using husk::failed;
using husk::null_argument;
using husk::Status;
using namespace husk::text;  // NOLINT: the C functions below are those of this namespace

struct husk_chat {
  Json json;
  bool trims = false;
  bool is_empty = true;
  List<char> messages;
  List<char> text;  // what husk_chat_text gave

  // A part of the form: the prefix (0) or the suffix (1) of a role.
  Span part(const JsonValue* role, int index) const { return json.text(role + 1 + index); }
  const JsonValue* role(const char* name) const {
    const JsonValue* found = json.member(json.root(), name);
    const bool is_pair = found && found->kind == JsonKind::array && found->number == 2 &&
                         found[1].kind == JsonKind::string && found[2].kind == JsonKind::string;
    return is_pair ? found : nullptr;
  }
};

namespace {

bool is_blank(char one) { return one == ' ' || (one >= '\t' && one <= '\r'); }

Span trimmed(Span text) {
  while (text.size && is_blank(text.data[0])) text = text.from(1);
  while (text.size && is_blank(text.data[text.size - 1])) --text.size;
  return text;
}

Status add(husk_chat& chat, const char* role, Span content, husk_error* error) {
  const JsonValue* parts = chat.role(role);
  const bool is_system = equal(Span(role), "system");
  if (!parts) {
    return fail(error, HUSK_UNSUPPORTED, "the chat of this model has no messages of the role '%s'",
                role);
  }
  if (is_system && !chat.is_empty) {
    return fail(error, HUSK_INVALID_ARGUMENT, "only the first message may be of the role 'system'");
  }
  const size_t before = chat.messages.size();
  const JsonValue* first = chat.json.member(chat.json.root(), "first");
  if (chat.trims) content = trimmed(content);
  Status status = Status::ok;
  if (chat.is_empty && !is_system && first && first->kind == JsonKind::string) {
    const Span text = chat.json.text(first);
    status = chat.messages.append(text.data, text.size, error);
  }
  for (const Span& text : {chat.part(parts, 0), content, chat.part(parts, 1)}) {
    if (!failed(status)) status = chat.messages.append(text.data, text.size, error);
  }
  if (failed(status)) {
    chat.messages.shrink(before);
    return status;
  }
  chat.is_empty = false;
  return Status::ok;
}

}  // namespace

husk_status husk_chat_create(const char* json, size_t bytes, husk_chat** chat, husk_error* error) {
  if (!chat) return null_argument(error, "chat_create", ": chat");
  *chat = nullptr;
  if (!json) return null_argument(error, "chat_create", ": json");
  return make(chat, error, [&](husk_chat& created) {
    HUSK_TRY(created.json.parse({json, bytes}, error));
    if (!created.role("user") || !created.role("assistant"))
      return fail(error, HUSK_INVALID_FILE, "the chat lacks the roles 'user' and 'assistant'");
    created.trims = created.json.has_true(created.json.root(), "trim");
    return Status::ok;
  });
}

void husk_chat_release(husk_chat* chat) { destroy(chat); }

husk_status husk_chat_add(husk_chat* chat, const char* role, const char* content, size_t bytes,
                          husk_error* error) {
  if (!chat || !role || (!content && bytes)) return null_argument(error, "chat_add");
  return static_cast<husk_status>(add(*chat, role, {content, bytes}, error));
}

husk_status husk_chat_text(husk_chat* chat, const char** text, size_t* bytes, husk_error* error) {
  if (!chat || !text || !bytes) return null_argument(error, "chat_text");
  chat->text.clear();
  const Span answer = chat->part(chat->role("assistant"), 0);
  Status status = chat->text.append(chat->messages.data(), chat->messages.size(), error);
  if (!failed(status)) status = chat->text.append(answer.data, answer.size, error);
  if (failed(status)) return static_cast<husk_status>(status);
  *text = !chat->text.empty() ? chat->text.data() : "";
  *bytes = chat->text.size();
  return HUSK_OK;
}

void husk_chat_clear(husk_chat* chat) {
  if (!chat) return;
  chat->messages.clear();
  chat->is_empty = true;
}
