#include "ir/op_table.h"
#include "model/shape.h"
#include "read/bounded_plan.h"
#include "read/disassembler.h"
#include "read/report.h"

#include <nlohmann/json.hpp>

namespace husk::compiler {
namespace {

using json = nlohmann::ordered_json;

json blob_json(const fb::Blob* blob) {
  return {{"offset", blob->offset()},
          {"size", blob->size()},
          {"hash", hexadecimal(blob->hash().bytes()->Data(), 32)}};
}

template <class T, class F>
json array(const T* rows, F make) {
  json out = json::array();
  for (uint32_t i = 0; i < count(rows); ++i) out.push_back(make(rows->Get(i)));
  return out;
}

json value_json(const fb::Value* v) {
  return {{"name", v->name()->str()},
          {"kind", value_kind_name(v->kind())},
          {"dtype", v->dtype() ? json(dtype_text(v->dtype())) : json()},
          {"rank", v->rank()},
          {"ranges", array(v->dims(), [](const fb::Dim* d) { return json{d->min(), d->max()}; })}};
}

json kernel_json(const fb::Program& p, const fb::Kernel* k) {
  return {{"name", k->name()->str()},
          {"symbol", k->symbol()->str()},
          {"image", shortened(p.images()->Get(k->image())->name()->c_str())},
          {"params", array(k->params(), dtype_text)},
          {"block", array(k->block(), [](uint32_t n) { return n; })},
          {"shared", k->shared()},
          {"cluster", k->cluster()},
          {"flags", k->flags()}};
}

json code_json(const Code& code) {
  json segments = json::array();
  for (const fb::Segment& s : code.segments) {
    json scalars = json::array(), steps = json::array();
    for (uint32_t i = s.scalar_begin(); i < s.scalar_end(); ++i)
      scalars.push_back(disassemble_scalar(code, i));
    for (uint32_t i = s.step_begin(); i < s.step_end(); ++i)
      steps.push_back(disassemble_step(code, i));
    segments.push_back({{"scalars", scalars},
                        {"steps", steps},
                        {"when", s.when() == kNone ? json() : json(s.when())},
                        {"back", s.back() == kNone ? json() : json(s.back())}});
  }
  json buffers = json::array();
  for (uint32_t i = 0; i < code.buffers.size; ++i)
    buffers.push_back({{"name", buffer_name(code, i)},
                       {"align", 1u << code.buffers[i].align_log2()},
                       {"size", code.buffers[i].size()},
                       {"on_host", code.device_of(i) == Device::host}});
  const fb::Target* target = code.program->targets()->Get(code.variant->target());
  const BoundedPlan plan(code, InputSizes());
  const bool bounded = plan.is_planned && !plan.first_unbounded() && !plan.on_demand_count();
  return {{"target", shortened(target->port()->c_str()) + " " + shortened(target->arch()->c_str())},
          {"arena_bytes", bounded ? json(plan.planned[Device::target].peak) : json()},
          {"host_arena_bytes", bounded ? json(plan.planned[Device::host].peak) : json()},
          {"buffers", buffers},
          {"segments", segments}};
}

json state_json(const fb::Program& p, const fb::State* s) {
  json out = {{"name", s->name()->str()},
              {"dtype", dtype_text(s->dtype())},
              {"dims", array(s->dims(), [](int64_t n) { return n; })}};
  if (s->init() == kNone)
    out["fill"] = s->fill();
  else
    out["constant"] = shortened(p.constants()->Get(s->init())->name()->c_str());
  return out;
}

json function_json(const fb::Program& p, const fb::Function* f) {
  return {{"name", f->name()->str()},
          {"inputs", array(f->inputs(), value_json)},
          {"outputs", array(f->outputs(), value_json)},
          {"variants",
           array(f->variants(), [&](const fb::Variant* v) { return code_json(Code(&p, f, v)); })}};
}

}  // namespace

std::string report_json(const Artifact& artifact, const std::vector<int32_t>& image_ranks) {
  const fb::Program& p = artifact.program();
  json out = {{"version", std::to_string(kMajor) + "." + std::to_string(artifact.minor())},
              {"bytes", artifact.size()},
              {"content_hash", artifact.content_hash()},
              {"producer", p.producer()->str()},
              {"tree", p.pytree() ? json(p.pytree()->str()) : json()}};
  if (!artifact.weights().empty()) out["weights"] = artifact.weights();
  out["user"] = array(p.metadata(),
                      [](const fb::Entry* e) { return json{e->key()->str(), e->value()->str()}; });
  out["asserts"] = array(p.asserts(), [](const flatbuffers::String* s) { return s->str(); });
  if (artifact.ranks()) out["ranks"] = artifact.ranks();
  if (const fb::World* world = p.world())
    out["world"] = {{"size", world->size()},
                    {"rank", world->rank()},
                    {"set", hexadecimal(world->set()->bytes()->data(), sizeof(fb::Hash))}};
  for (uint32_t i = 0; i < count(p.packed()); ++i) {
    const fb::PackedCopy* copy = p.packed()->Get(i);
    out["packed"].push_back({{"key", hexadecimal(copy->key().bytes()->data(), sizeof(fb::Hash))},
                             {"bytes", copy->blob().size()}});
  }
  out["targets"] = array(p.targets(), [](const fb::Target* t) {
    return json{{"port", t->port()->str()}, {"arch", t->arch()->str()}};
  });
  out["images"] = array(p.images(), [&](const fb::Image* i) {
    return json{{"name", i->name()->str()},
                {"target", i->target()},
                {"format", image_format_name(i->format())},
                {"blob", blob_json(i->blob())}};
  });
  for (size_t i = 0; i < image_ranks.size(); ++i) out["images"][i]["rank"] = image_ranks[i];
  out["kernels"] = array(p.kernels(), [&](const fb::Kernel* k) { return kernel_json(p, k); });
  out["ops"] = array(p.ops(), [](const flatbuffers::String* s) { return s->str(); });
  out["constants"] = array(p.constants(), [](const fb::Constant* c) {
    json row = {{"name", c->name()->str()},
                {"dtype", dtype_text(c->dtype())},
                {"dims", array(c->dims(), [](int64_t n) { return n; })},
                {"blob", blob_json(c->blob())}};
    if (c->folded_by() != kNone) {
      row["folded_by"] = c->folded_by();
      row["bytes"] = verified_bytes(c);
    }
    return row;
  });
  out["states"] = array(p.states(), [&](const fb::State* s) { return state_json(p, s); });
  out["functions"] = array(p.functions(),
                           [&](const fb::Function* f) { return function_json(p, f); });
  // A name may hold any bytes; bytes that are not UTF-8 are printed as U+FFFD.
  return out.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace husk::compiler
