// Builds the graphs of a function in a resize.
#pragma once

#include "session/session.h"

namespace husk::runtime {

class Graph::Builder {
 public:
  Builder(Graph& graph, Frame& frame);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  Status run(husk_error* error);

 private:
  // Why a segment gets no graph; `text` is null if nothing is in the way. A lasting obstacle is
  // there at every shape.
  struct Obstacle {
    const char* text = nullptr;
    bool lasting = false;
    uint32_t step = 0;
  };
  // The arguments of a new copy or fill node. If they are not `exact`, they are valid and wrong.
  struct Transfer {
    void *to, *from;
    uint64_t length;
    bool exact;
  };

  Status consider(uint32_t segment, husk_error* error);
  Obstacle find_obstacle(uint32_t segment) const;
  Obstacle find_step_obstacle(uint32_t step) const;
  Obstacle find_call_obstacle(uint32_t step) const;
  bool uses_memory_on_demand(uint32_t step) const;
  bool writes_shared_operand(uint32_t step) const;
  bool choose_transfer(uint32_t step, Transfer* out) const;
  const husk_op& op_of(uint32_t step) const;  // of an extern step
  bool is_kernel(uint32_t step) const;
  bool waits_first(uint32_t step) const;
  bool is_prepared(uint32_t step) const { return frame_.prepared[step] != 0; }
  void refuse(uint32_t segment, Obstacle obstacle);
  void refuse(uint32_t segment, uint32_t step, const char* what, const husk_error& why);

  Status use_call(uint32_t segment, uint32_t step, husk_error* error);
  Status use_register(uint32_t segment, uint32_t index, husk_error* error);
  Status use_view(uint32_t segment, uint32_t step, uint32_t argument, husk_error* error);
  void allocate_staging();

  Status build_segment(uint32_t segment, husk_error* error);
  Status add_steps(uint32_t segment, husk_error* error);
  Status collect_edges(uint32_t segment, uint32_t step, husk_error* error);
  Status add_step(uint32_t step, husk_error* error);
  Status add_call(uint32_t segment, uint32_t step, husk_error* error);
  Status add_staging_copies(uint32_t segment, uint32_t step, bool before, husk_error* error);
  Status count_node(husk_status added, uint32_t step, husk_error* error);
  void* capture(uint32_t segment, uint32_t step, husk_error* why);
  void use_staging(uint32_t segment, uint32_t step, bool staged);

  Graph& graph_;
  Frame& frame_;
  const Code& code_;
  Session& session_;
  const husk_port_graphs& port_;
  void* const device_;
  Array<uint8_t> accepted_;                      // by segment: it is to have a graph
  Array<uint32_t> register_used_, buffer_used_;  // the number of the last segment that uses it, + 1
  uint64_t staging_bytes_ = 0;
  Dependences dependences_;
  size_t edge_ = 0;               // the first edge of dependences_ that no step has taken
  List<husk_graph_edge> before_;  // the edges into the next node
  void* stream_ = nullptr;        // the stream on which calls are captured
  void* building_ = nullptr;      // the port's graph of the segment
  uint32_t next_node_ = 0;        // the number of its next node
};

}  // namespace husk::runtime
