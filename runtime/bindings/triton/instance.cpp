#include "instance.h"

#include "sequences.h"
#include "stream.h"

namespace husk::triton {

Error Instance::create(TRITONBACKEND_ModelInstance* handle, Model* model,
                       std::unique_ptr<Instance>* instance) {
  TRITONSERVER_InstanceGroupKind kind;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelInstanceKind(handle, &kind)));
  int32_t gpu = Device::kCpu;
  if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
    HUSK_TRITON_TRY(Error(TRITONBACKEND_ModelInstanceDeviceId(handle, &gpu)));
  else if (kind == TRITONSERVER_INSTANCEGROUPKIND_MODEL)
    gpu = model->settings().model_gpu;
  const Program* program;
  if (model->ranks()) {
    program = &model->home();
  } else if (model->settings().sequences) {
    // The server may send a request to any instance, and the state is on one device.
    program = &model->home();
    if (program->device().gpu != gpu)
      log(TRITONSERVER_LOG_WARN, ("sequences of the model run on " + program->device().name() +
                                  ", where the first instance is")
                                     .c_str());
  } else {
    HUSK_TRITON_TRY(model->program(gpu, &program));
  }
  std::unique_ptr<Instance> out(new Instance(handle, model, *program));
  if (!model->settings().sequences && !model->ranks())
    HUSK_TRITON_TRY(Session::create(*program, model->settings().memory_limit, &out->session_));
  *instance = std::move(out);
  return nullptr;
}

void Instance::execute(TRITONBACKEND_Request** requests, uint32_t count) {
  const uint64_t start = now();
  if (calls_.size() < count) calls_.resize(count);
  runs_.clear();
  for (uint32_t i = 0; i < count; ++i) calls_[i].open(requests[i], *model_, program_);
  run(count);
  // Sending takes the longest, and the clients wait for it; so everything else follows it.
  for (uint32_t i = 0; i < count; ++i) calls_[i].send();
  const uint64_t end = now();
  for (uint32_t i = 0; i < count; ++i) {
    const Call& call = calls_[i];
    const bool ran = call.compute_end != 0;
    log(Error(TRITONBACKEND_ModelInstanceReportStatistics(handle_, call.request(), !call.failed(),
                                                          start, ran ? call.compute_start : start,
                                                          ran ? call.compute_end : start, end)));
  }
  for (const Run& run : runs_)
    log(Error(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        handle_, run.rows, start, run.compute_start, run.compute_end, end)));
  for (uint32_t i = 0; i < count; ++i) calls_[i].release();
}

// Runs the calls that have not failed: those that fit one another together, if the configuration
// says that dim 0 is a batch.
void Instance::run(uint32_t count) {
  const Settings& settings = model_->settings();
  for (uint32_t i = 0; i < count; ++i) {
    Call& first = calls_[i];
    if (settings.decoupled) {
      Stream(program_, session_.get(), &first).run();
      add_run(first, 1);
      continue;
    }
    if (settings.sequences) {
      if (Error failure = model_->sequences().run(&first)) first.set_error(std::move(failure));
      add_run(first, 1);
      continue;
    }
    if (first.failed() || first.compute_end) continue;
    batch_.assign(1, &first);
    if (settings.max_batch_size > 0 && first.rows() > 0)
      for (uint32_t k = i + 1; k < count; ++k)
        if (Call& other = calls_[k];
            !other.failed() && !other.compute_end && other.rows() > 0 && first.fits(other))
          batch_.push_back(&other);
    run_batch();
  }
}

void Instance::run_batch() {
  if (batch_.size() > 1) {
    Ranks* ranks = model_->ranks();
    const Error failure = ranks ? ranks->run(batch_) : session_->first(*batch_[0]).run(batch_);
    if (!failure) {
      uint64_t rows = 0;
      for (const Call* call : batch_) rows += uint64_t(call->rows());
      return add_run(*batch_[0], rows);
    }
  }
  // If a batch fails, only the calls that fail alone are at fault.
  for (Call* call : batch_) run_one(call);
}

void Instance::run_one(Call* call) {
  Error failure = call->check_cancelled();
  if (!failure) failure = run_alone(call);
  if (failure) return call->set_error(std::move(failure));
  const bool batched = model_->settings().max_batch_size > 0;
  add_run(*call, batched ? uint64_t(call->rows()) : 1);
}

Error Instance::run_alone(Call* call) {
  if (Ranks* ranks = model_->ranks()) return ranks->run(call);
  // No client may see what another one left in a state.
  if (program_.has_state()) HUSK_TRITON_TRY(session_->forget());
  return session_->first(*call).run(call);
}

void Instance::add_run(const Call& call, uint64_t rows) {
  if (call.compute_end) runs_.push_back({rows, call.compute_start, call.compute_end});
}

}  // namespace husk::triton
