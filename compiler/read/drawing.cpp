#include "read/drawing.h"

#include <fmt/format.h>

#include <algorithm>

#include "read/disassembler.h"

namespace husk::compiler {
namespace {

constexpr uint64_t kColumns = 100, kRows = 24;
constexpr double kMargin = 20, kTitle = 40, kLetter = 6.5;  // SVG units

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < ' ' ? '?' : c;
    }
  }
  return out;
}

// Position in `order` of the buffer that covers a byte at a step, or the size of `order`.
size_t buffer_at(const BoundedPlan& bounded, const std::vector<uint32_t>& order, uint64_t step,
                 uint64_t byte) {
  for (size_t n = 0; n < order.size(); ++n) {
    const Block& b = bounded.blocks[order[n]];
    if (step >= b.first && step <= b.last && byte >= b.offset && byte < b.offset + b.size) return n;
  }
  return order.size();
}

}  // namespace

char drawing_letter(size_t n) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return kLetters[n % 62];
}

std::string draw_text(const BoundedPlan& bounded, const std::vector<uint32_t>& order) {
  const uint64_t steps = bounded.code.steps.size, peak = bounded.planned[Device::target].peak;
  if (peak == 0 || steps == 0) return "";
  const uint64_t columns = std::min(steps, kColumns), rows = std::min(peak, kRows);
  std::string out;
  for (uint64_t row = rows; row-- > 0;) {
    const uint64_t low = peak / rows * row + peak % rows * row / rows;
    const uint64_t high = peak / rows * (row + 1) + peak % rows * (row + 1) / rows;
    std::string line;
    for (uint64_t column = 0; column < columns; ++column) {
      const size_t n = buffer_at(bounded, order, column * steps / columns, low + (high - low) / 2);
      line += n == order.size() ? '.' : drawing_letter(n);
    }
    out += fmt::format("  {:>14} |{}|\n", low, line);
  }
  return out + fmt::format("  {:>14}  {}{:>{}}\n", "", 0,
                           columns > 1 ? fmt::format("{}", steps - 1) : "", columns - 1);
}

std::string draw_svg(const BoundedPlan& bounded, const std::string& title,
                     const std::vector<uint32_t>& order, double top) {
  const double steps = std::max<double>(bounded.code.steps.size, 1),
               peak = std::max<double>(double(bounded.planned[Device::target].peak), 1);
  const double width = kSvgWidth - 2 * kMargin, height = kSvgHeight - kTitle - kMargin,
               bottom = top + kSvgHeight - kMargin;
  auto y = [&](double bytes) { return bottom - bytes / peak * height; };
  std::string out = fmt::format("<text x=\"{}\" y=\"{:.1f}\" font-size=\"14\">{}</text>\n", kMargin,
                                top + 20, escaped(title));
  for (size_t n = 0; n < order.size(); ++n) {
    const Block& b = bounded.blocks[order[n]];
    if (b.size == 0) continue;
    const double x = kMargin + b.first / steps * width, w = (b.last - b.first + 1) / steps * width;
    const double h = double(b.size) / peak * height;
    const std::string name = escaped(buffer_name(bounded.code, bounded.arena[order[n]].row));
    out += fmt::format(
        "<g><title>{}: {} bytes at {}, steps {} to {}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" "
        "width=\"{:.2f}\" "
        "height=\"{:.2f}\" fill=\"hsl({},60%,75%)\" stroke=\"#333\" stroke-width=\"0.5\"/>",
        name, b.size, b.offset, b.first, b.last, x, y(double(b.offset + b.size)), w, h,
        n * 137 % 360);
    if (w > kLetter * double(name.size()) && h > 11)
      out += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"11\">{}</text>", x + 2,
                         y(double(b.offset)) - 3, name);
    out += "</g>\n";
  }
  auto line = [&](uint64_t bytes, const char* what, const char* dashes) {
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\" stroke=\"#000\" "
        "stroke-dasharray=\"{3}\"/>"
        "<text x=\"{1}\" y=\"{4:.2f}\" font-size=\"11\" text-anchor=\"end\">{5} {6}</text>\n",
        kMargin, kSvgWidth - kMargin, y(double(bytes)), dashes, y(double(bytes)) - 3, what, bytes);
  };
  line(bounded.planned[Device::target].peak, "peak", "none");
  if (bounded.planned[Device::target].lower_bound != bounded.planned[Device::target].peak)
    line(bounded.planned[Device::target].lower_bound, "lower bound", "4 3");
  return out;
}

}  // namespace husk::compiler
