#include "packing/packing.h"

#include <algorithm>
#include <cctype>
#include <thread>

#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/weights.h>

#include "cpu.h"
#include "device.h"
#include "program/engine.h"
#include "program/program.h"

namespace husk::packing {
namespace {

using host::Features;

struct CpuSet {
  const char* name;
  Features features;
};
constexpr CpuSet kSets[] = {
#define HUSK_CPU_SET(Name, machine, base, features) {#Name, host::cpu_set::k##Name},
#include <cpus.def>
};

#if defined(__x86_64__)
constexpr Features kMachine = host::cpu_set::kBaseline;
#else
constexpr Features kMachine = host::cpu_set::kArmBaseline;
#endif

std::string name_of(const CpuSet& set) {
  std::string name = set.name;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

Features features_of(const std::string& name) {
  for (const CpuSet& set : kSets)
    if (name_of(set) == name) return set.features;
  return host::cpu_set::kNone;
}

}  // namespace

std::vector<std::string> set_names() {
  std::vector<std::string> names;
  for (const CpuSet& set : kSets)
    if (set.features.has(kMachine)) names.push_back(name_of(set));
  return names;
}

bool has_set(const std::string& name) { return host::cpu_features().has(features_of(name)); }

Opened::~Opened() {
  husk_program_release(program_);
  husk_engine_release(engine_);
  if (threads_.count) husk_host_threads_release(&threads_);
}

husk_status Opened::open(const char* path, const std::string& set, uint32_t rank, uint32_t world,
                         husk_error* error) {
  const uint32_t count = std::clamp(std::thread::hardware_concurrency(), 1u,
                                    uint32_t{HUSK_HOST_THREADS_MAX});
  husk_status status = husk_host_threads_create(count, nullptr, &threads_, error);
  if (status != HUSK_OK) {
    threads_.count = 0;
    return status;
  }
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_host();
  options.threads = &threads_;
  options.allow_host_images = 1;
  options.rank = rank;
  options.world = world;
  status = husk_engine_create(&options, &engine_, error);
  if (status == HUSK_OK) status = husk_ops_add_all(engine_, error);
  if (status != HUSK_OK) return status;
  if (!set.empty()) static_cast<host::Device*>(engine_->device)->features = features_of(set);
  return husk_weights_open(engine_, path, nullptr, &program_, error);
}

std::vector<Copy> Opened::copies() const {
  const runtime::PackedConstants& packed = program_->packed;
  std::vector<Copy> out;
  for (size_t i = 0; i < packed.count(); ++i) {
    Copy copy;
    if (!packed.write_key(i, copy.key.data())) continue;
    copy.bytes = {packed.data(i), packed.bytes(i)};
    out.push_back(copy);
  }
  return out;
}

}  // namespace husk::packing
