#include "session.h"

#include <algorithm>

namespace husk::triton {

Error Session::create(const Program& program, uint64_t memory_limit,
                      std::unique_ptr<Session>* session) {
  std::unique_ptr<Session> out(new Session(program));
  const Device& device = program.device();
  if (device.memory_bytes) memory_limit = std::min(memory_limit, device.memory_bytes);
  HUSK_TRITON_TRY(out->stream_.create(device));
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.memory_limit = memory_limit;
  husk_session* handle = nullptr;
  husk_error error;
  if (husk_session_create(program.get(), &options, &handle, &error) != HUSK_OK) return fail(error);
  out->session_.reset(handle);
  const Function::Place place = {device, out->stream_.get(), memory_limit};
  for (const Signature& function : program.functions())
    out->functions_.emplace_back(handle, function, place);
  if (const Signature* next = program.next_signature()) out->next_.emplace(handle, *next, place);
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
  for (uint32_t i = 0; i < husk_program_state_count(program_.get()); ++i) {
    husk_storage_info state = HUSK_STORAGE_INFO_INIT;
    if (husk_program_state(program_.get(), i, &state, &error) != HUSK_OK) return fail(error);
    if (!generator && is_generator(state)) continue;
    if (husk_session_state_reset(session_.get(), i, &error) != HUSK_OK) return fail(error);
  }
  for (Function& function : functions_) function.mend();
  if (next_) next_->mend();
  return nullptr;
}

}  // namespace husk::triton
