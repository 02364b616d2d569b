#include "read/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include <husk/husk.h>

#include "ir/op_table.h"
#include "ir/printable.h"
#include "ir/printer.h"
#include "read/disassembler.h"
#include "read/drawing.h"
#include "read/plan.h"

namespace husk::compiler {
namespace {

constexpr size_t kHashPrefix = 8;  // bytes of a hash that are printed

class Lines {
 public:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void raw(const std::string& text) { out_ += text; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string dims_text(const flatbuffers::Vector<int64_t>* dims) {
  std::string out = "[";
  for (uint32_t i = 0; i < count(dims); ++i)
    out += fmt::format("{}{}", i ? ", " : "", dims->Get(i));
  return out + "]";
}

std::string range_text(const fb::Dim& dim) {
  if (dim.min() == dim.max()) return fmt::format("{}", dim.min());
  return dim.max() == INT64_MAX ? fmt::format("{}..inf", dim.min())
                                : fmt::format("{}..{}", dim.min(), dim.max());
}

std::string blob_text(const fb::Blob* blob) {
  return fmt::format("{} bytes at {}, hash {}", blob->size(), blob->offset(),
                     hexadecimal(blob->hash().bytes()->Data(), kHashPrefix));
}

std::string value_text(const fb::Value* v, bool input) {
  std::string out = fmt::format("{} {} {}", input ? "input" : "output", printable(v->name()->str()),
                                value_kind_name(v->kind()));
  if (v->kind() == HUSK_VALUE_TENSOR) {
    out += fmt::format(" {}", dtype_text(v->dtype()));
    if (!input) out += fmt::format(" rank {}", v->rank());
  }
  if (input && (v->kind() == HUSK_VALUE_TENSOR || count(v->dims()))) {
    const bool tensor = v->kind() == HUSK_VALUE_TENSOR;
    out += tensor ? " [" : " ";
    for (uint32_t i = 0; i < count(v->dims()); ++i)
      out += (i ? ", " : "") + range_text(*v->dims()->Get(i));
    if (tensor) out += "]";
  }
  return out;
}

std::string target_text(const fb::Program& p, uint32_t index) {
  const fb::Target* target = p.targets()->Get(index);
  return shortened(target->port()->c_str()) + " " + shortened(target->arch()->c_str());
}

void kernel_line(const fb::Program& p, const fb::Kernel* k, Lines& out) {
  std::string text = fmt::format("kernel {} of {} {} (", printable(k->name()->str()),
                                 shortened(p.images()->Get(k->image())->name()->c_str()),
                                 quote(k->symbol()->str()));
  for (uint32_t i = 0; i < count(k->params()); ++i)
    text += (i ? ", " : "") + std::string(dtype_text(k->params()->Get(i)));
  text += fmt::format(") block {} {} {}", k->block()->Get(0), k->block()->Get(1),
                      k->block()->Get(2));
  if (k->shared()) text += fmt::format(" shared {}", k->shared());
  if (k->cluster() != 1) text += fmt::format(" cluster {}", k->cluster());
  if (k->flags() & kPdlWaitFirst) text += " pdl_wait_first";
  if (k->flags() & kPdlInGraph) text += " pdl_in_graph";
  if (k->flags() & kCooperative) text += " cooperative";
  if (k->flags() & kTriggersEarly) text += " triggers_early";
  out.put("{}", text);
}

void state_line(const fb::Program& p, const fb::State* s, Lines& out) {
  const std::string what = fmt::format("state {} {} {}", printable(s->name()->str()),
                                       dtype_text(s->dtype()), dims_text(s->dims()));
  if (s->init() == kNone)
    out.put("{} fill 0x{:x}", what, s->fill());
  else
    out.put("{} constant {}", what, shortened(p.constants()->Get(s->init())->name()->c_str()));
}

void data_lines(const fb::Program& p, Lines& out) {
  for (uint32_t i = 0; i < count(p.images()); ++i) {
    const fb::Image* image = p.images()->Get(i);
    out.put("image {} {} for {}, {}", printable(image->name()->str()),
            image_format_name(image->format()), target_text(p, image->target()),
            blob_text(image->blob()));
  }
  for (uint32_t i = 0; i < count(p.kernels()); ++i) kernel_line(p, p.kernels()->Get(i), out);
  for (uint32_t i = 0; i < count(p.ops()); ++i) out.put("op {}", quote(p.ops()->Get(i)->str()));
  for (uint32_t i = 0; i < count(p.constants()); ++i) {
    const fb::Constant* c = p.constants()->Get(i);
    const bool folded = c->folded_by() != kNone;
    out.put("constant {} {} {}, {}", printable(c->name()->str()), dtype_text(c->dtype()),
            dims_text(c->dims()),
            folded ? "folded by " + printable(p.functions()->Get(c->folded_by())->name()->str())
                   : blob_text(c->blob()));
  }
  for (uint32_t i = 0; i < count(p.packed()); ++i) {
    const fb::PackedCopy* copy = p.packed()->Get(i);
    out.put("packed copy {}, {}", hexadecimal(copy->key().bytes()->data(), sizeof(fb::Hash)),
            blob_text(&copy->blob()));
  }
  for (uint32_t i = 0; i < count(p.states()); ++i) state_line(p, p.states()->Get(i), out);
}

template <class F>
void each_variant(const fb::Program& p, F visit) {
  for (uint32_t i = 0; i < count(p.functions()); ++i) {
    const fb::Function* function = p.functions()->Get(i);
    for (uint32_t j = 0; j < count(function->variants()); ++j)
      visit(Code(&p, function, function->variants()->Get(j)));
  }
}

// Sums the sizes of blobs; blobs that share their bytes count once.
class BlobSizes {
 public:
  // The bytes that the blob adds to the sum.
  uint64_t add(const fb::Blob* blob) {
    const bool is_new = seen_.insert({blob->offset(), blob->size()}).second;
    return is_new ? blob->size() : 0;
  }

 private:
  std::set<std::pair<uint64_t, uint64_t>> seen_;
};

// A text in quotes. Of a long one, such as a vocabulary, the beginning and the size.
std::string quoted_beginning(const std::string& text) {
  constexpr size_t kMost = 50000, kBeginning = 200;
  if (text.size() <= kMost) return quote(text);
  size_t end = kBeginning;  // not inside of a character
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return fmt::format("{} and more, {} bytes", quote(text.substr(0, end)), text.size());
}

}  // namespace

std::string report_metadata(const Artifact& artifact) {
  const fb::Program& p = artifact.program();
  Lines out;
  out.put("husk {}.{}, {} bytes, content hash {}", +kMajor, artifact.minor(), artifact.size(),
          artifact.content_hash());
  out.put("producer {}", quote(p.producer()->str()));
  if (!artifact.weights().empty()) out.put("weights beside the file, in {}", artifact.weights());
  for (uint32_t i = 0; i < count(p.metadata()); ++i)
    out.put("user {} {}", quote(p.metadata()->Get(i)->key()->str()),
            quoted_beginning(p.metadata()->Get(i)->value()->str()));
  if (p.pytree()) out.put("tree {}", quote(p.pytree()->str()));
  for (uint32_t i = 0; i < count(p.asserts()); ++i)
    out.put("assert {} {}", i + 1, quote(p.asserts()->Get(i)->str()));
  if (artifact.ranks()) out.put("ranks {} in this file", artifact.ranks());
  if (const fb::World* world = p.world())
    out.put("world {} rank {} set {}", world->size(), world->rank(),
            hexadecimal(world->set()->bytes()->data(), sizeof(fb::Hash)));
  for (uint32_t i = 0; i < count(p.targets()); ++i)
    out.put("target {} {}", p.targets()->Get(i)->port()->str(), p.targets()->Get(i)->arch()->str());
  data_lines(p, out);
  for (uint32_t i = 0; i < count(p.functions()); ++i) {
    const fb::Function* f = p.functions()->Get(i);
    out.put("function {}", printable(f->name()->str()));
    for (uint32_t j = 0; j < count(f->inputs()); ++j)
      out.put("  {}", value_text(f->inputs()->Get(j), true));
    for (uint32_t j = 0; j < count(f->outputs()); ++j)
      out.put("  {}", value_text(f->outputs()->Get(j), false));
    for (uint32_t j = 0; j < count(f->variants()); ++j) {
      const Code code(&p, f, f->variants()->Get(j));
      out.put("  variant {}: {} segments, {} registers, {} steps, {} buffers, {} views, {} tensors",
              target_text(p, code.variant->target()), code.segments.size, code.scalars.size,
              code.steps.size, code.buffers.size, code.views.size, code.tensors.size);
    }
  }
  return out.take();
}

std::string report_code(const Artifact& artifact) {
  const fb::Program& p = artifact.program();
  Lines out;
  each_variant(p, [&](const Code& code) {
    out.put("function {}, variant {}", shortened(code.function->name()->c_str()),
            target_text(p, code.variant->target()));
    out.raw(disassemble(code, 2));
  });
  return out.take();
}

namespace {

template <class T>
uint64_t bytes_of(const Rows<T>& rows) {
  return rows.size * sizeof(T);
}

template <class F>
std::string concatenate_variants(const Artifact& artifact, F report) {
  std::string out;
  each_variant(artifact.program(), [&](const Code& code) { out += report(code); });
  return out;
}

}  // namespace

std::string report_plan_summary(const Artifact& artifact, const InputSizes& sizes) {
  return concatenate_variants(artifact,
                              [&](const Code& code) { return plan_summary(code, sizes); });
}

std::string report_plan(const Artifact& artifact, const InputSizes& sizes) {
  return concatenate_variants(artifact, [&](const Code& code) { return plan_text(code, sizes); });
}

std::string report_svg(const Artifact& artifact, const InputSizes& sizes) {
  double top = 0;
  const std::string plans = concatenate_variants(artifact, [&](const Code& code) {
    std::string plan = plan_svg(code, sizes, top);
    top += kSvgHeight;
    return plan;
  });
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
             "font-family=\"sans-serif\">\n",
             kSvgWidth, top) +
         plans + "</svg>\n";
}

std::string report_graph(const Artifact& artifact) {
  return concatenate_variants(artifact, graph_text);
}

std::string report_sizes(const Artifact& artifact) {
  const fb::Program& p = artifact.program();
  uint64_t images = 0, constants = 0, packed = 0, code = 0, strings = 0;
  BlobSizes sizes;
  for (uint32_t i = 0; i < count(p.images()); ++i) images += sizes.add(p.images()->Get(i)->blob());
  for (uint32_t i = 0; i < count(p.constants()); ++i)
    constants += sizes.add(p.constants()->Get(i)->blob());
  for (uint32_t i = 0; i < count(p.packed()); ++i) packed += sizes.add(&p.packed()->Get(i)->blob());
  each_variant(p, [&](const Code& c) {
    code += bytes_of(c.scalars) + bytes_of(c.steps) + bytes_of(c.segments) + bytes_of(c.arguments) +
            bytes_of(c.results) + bytes_of(c.buffers) + bytes_of(c.views) + bytes_of(c.tensors) +
            bytes_of(c.operands) + bytes_of(c.origins) + bytes_of(c.names) + bytes_of(c.order);
  });
  for (uint32_t i = 0; i < count(p.strings()); ++i) strings += p.strings()->Get(i)->size();
  Lines out;
  auto row = [&](const char* what, uint64_t bytes) { out.put("{:<24}{:>16}", what, bytes); };
  row("header, metadata", artifact.size() - artifact.blob_bytes());
  row("  code", code);
  row("  texts", strings);
  row("images", images);
  row("constants", constants);
  if (p.packed()) row("packed copies", packed);
  row(artifact.ranks() ? "other ranks" : "between blobs",
      artifact.blob_bytes() - images - constants - packed);
  row("file", artifact.size());
  return out.take();
}

}  // namespace husk::compiler
