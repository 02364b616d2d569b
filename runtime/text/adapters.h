// Adapters (LoRA) of a language model: matrices that are constants of the program, and are written
// while it runs. husk/generate.h says what their files have.
#pragma once

#include <husk/generate.h>

#include "base/sync.h"
#include "text/json.h"

namespace husk::text {

// The layers of a program that adapters change, and the files that are read for them. The constants
// `model.LAYER.lora_A` (adapters x rank x inputs) and `model.LAYER.lora_B` (adapters x outputs x
// rank) have one adapter more than `count`: number 0, which changes nothing.
class Adapters {
 public:
  // Finds the layers. With a count of 0 there are none.
  Status open(husk_program* program, int64_t adapter_count, int64_t largest_rank,
              husk_error* error);
  int64_t count() const { return count_; }

  // Any thread may call these.
  // Reads an adapter and writes it to the constants, all of it or nothing, unless a request uses
  // it. Layers that it does not have stay as they are without it.
  Status set(uint32_t adapter, Span weights, Span config, husk_error* error);
  Status remove(uint32_t adapter, husk_error* error);
  // A request takes its adapter (0: none), which must be set, and gives it back when it is done.
  // `version` is another number each time that an adapter is set; 0 is that of none.
  Status take(uint32_t adapter, uint64_t* version, husk_error* error);
  void give_back(uint32_t adapter);

 private:
  struct Layer {
    Span name;  // in the model
    uint32_t a, b;
    int64_t inputs, outputs;
    husk_dtype dtype;
  };
  // A matrix of a file; without data, there is none.
  struct Matrix {
    const char* data;
    int64_t rows, columns;
    husk_dtype dtype;
  };
  struct Pair {
    Matrix a, b;
  };
  struct Settings;
  struct State {
    uint64_t version;  // 0: it is not set
    uint64_t users;    // requests
    bool is_changing;
  };

  Status begin_change(uint32_t adapter, husk_error* error);

  Status add_layer(uint32_t constant, const husk_storage_info& a, husk_error* error);
  Status read(Span weights, const Settings& settings, List<Pair>& pairs, husk_error* error) const;
  Status read_entry(Span name, const Json& json, const JsonValue* value, Span data,
                    List<Pair>& pairs, husk_error* error) const;
  Status check(const Layer& layer, const Pair& pair, const Settings& settings,
               husk_error* error) const;
  Status read_and_write(uint32_t adapter, Span weights, Span config, bool* is_damaged,
                        husk_error* error);
  Status write(int64_t adapter, const List<Pair>& pairs, const Settings& settings, bool* is_damaged,
               husk_error* error);

  husk_program* program_ = nullptr;
  int64_t count_ = 0, rank_ = 0;
  List<Layer> layers_;
  Mutex mutex_;
  List<State> states_;  // by number; the lock guards them
  uint64_t last_version_ = 0;
};

}  // namespace husk::text
