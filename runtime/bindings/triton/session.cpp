#include "session.h"

namespace husk::triton {

Error Session::create(const Model& model, std::unique_ptr<Session>* session) {
  std::unique_ptr<Session> out(new Session(model));
  const uint64_t memory_limit = model.settings().memory_limit;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.memory_limit = memory_limit;
  husk_session* handle = nullptr;
  husk_error error;
  if (husk_session_create(model.program(), &options, &handle, &error) != HUSK_OK)
    return fail(error);
  out->session_.reset(handle);
  for (const Signature& function : model.functions())
    out->functions_.emplace_back(handle, function, memory_limit);
  if (const Signature* next = model.next_signature())
    out->next_.emplace(handle, *next, memory_limit);
  *session = std::move(out);
  return nullptr;
}

bool Session::has_valid_states() const {
  for (const Function& function : functions_)
    if (function.broke()) return false;
  return !(next_ && next_->broke());
}

Error Session::reset(bool generator) {
  husk_error error;
  for (uint32_t i = 0; i < husk_program_state_count(model_.program()); ++i) {
    husk_storage_info state = HUSK_STORAGE_INFO_INIT;
    if (husk_program_state(model_.program(), i, &state, &error) != HUSK_OK) return fail(error);
    if (!generator && is_generator(state)) continue;
    if (husk_session_state_reset(session_.get(), i, &error) != HUSK_OK) return fail(error);
  }
  for (Function& function : functions_) function.mend();
  if (next_) next_->mend();
  return nullptr;
}

}  // namespace husk::triton
