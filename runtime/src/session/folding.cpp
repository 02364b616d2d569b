#include "session/folding.h"

#include "session/session.h"

namespace husk::runtime {
namespace {

// The constants are outputs that belong to the program's own session, so they stay where they are
// from one call of fold() to the next.
Status fold_function(Program* program, uint32_t function, uint32_t first, husk_error* error) {
  auto* session = static_cast<Session*>(program->folding);
  const Frame& frame = *session->frames[function];
  const uint32_t n = frame.code.outputs();
  Array<husk_value> outputs;
  HUSK_TRY(outputs.allocate(session->allocator(), n, error));
  HUSK_TRY(session->resize(function, nullptr, 0, error));  // its memory may pass the bound_limit
  HUSK_TRY(session->run(function, nullptr, nullptr, 0, outputs.data(), n, error));
  HUSK_TRY(session->wait(error));
  for (uint32_t o = 0; o < n; ++o) {
    const OutputState& output = frame.io.output_states[o];
    if (output.bytes != program->constants.bytes(first + o))
      return fail(error, HUSK_INVALID_FILE, "constant '%s' has %llu bytes, its function made %llu",
                  program->rows()->constants()->Get(first + o)->name()->c_str(),
                  static_cast<unsigned long long>(program->constants.bytes(first + o)),
                  static_cast<unsigned long long>(output.bytes));
    program->constants.place(first + o, output.data);
  }
  return Status::ok;
}

// Calls `visit(function, its first constant)` for each function that folds constants here.
template <class F>
Status each_function(const Program& program, F visit) {
  uint32_t constant = program.constants.count();
  for (uint32_t f = program.entry_points(); f < program.functions(); ++f) {
    if (program.runs(f)) HUSK_TRY(visit(f, constant));
    constant += count(program.rows()->functions()->Get(f)->outputs());
  }
  return Status::ok;
}

Status fold(Program* program, husk_error* error) {
  return each_function(*program, [&](uint32_t f, uint32_t first) {
    const Status status = fold_function(program, f, first, error);
    if (failed(status))
      prefix(error, "function '%s': ", program->rows()->functions()->Get(f)->name()->c_str());
    return status;
  });
}

}  // namespace

uint64_t folded_bytes(const Program& program) {
  uint64_t bytes = 0;
  if (program.folding)
    (void)each_function(program, [&](uint32_t f, uint32_t first) {
      const uint32_t n = count(program.rows()->functions()->Get(f)->outputs());
      for (uint32_t o = 0; o < n; ++o) bytes += program.constants.bytes(first + o);
      return Status::ok;
    });
  return bytes;
}

Status begin_folding(Program* program, husk_error* error) {
  if (program->entry_points() == program->functions()) return Status::ok;
  Engine& engine = *program->engine;
  auto* session = create<Session>(engine.allocator, error);
  if (!session) return to_status(HUSK_OUT_OF_MEMORY);
  program->folding = session;
  session->options = HUSK_SESSION_OPTIONS_INIT;
  session->options.mode = HUSK_MODE_LIST;
  session->join(program);
  // The session's memory is that of the folded constants and of the steps that make them. A file
  // may want more for these than its constants say.
  const uint64_t used = program->memory_bytes, most = engine.options.max_program_bytes;
  HUSK_TRY(engine.count_memory(folded_bytes(*program), &program->memory_bytes, error));
  if (most) session->options.memory_limit = most > used ? most - used : 1;
  HUSK_TRY(session->prepare(program->entry_points(), program->functions(), error));
  program->fold = fold;
  return fold(program, error);
}

void end_folding(Program* program) {
  if (program->folding)
    destroy(program->engine->allocator, static_cast<Session*>(program->folding));
}

}  // namespace husk::runtime
