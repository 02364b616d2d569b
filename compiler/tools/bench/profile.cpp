#include "bench/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "bench/statistics.h"

#include <nlohmann/json.hpp>

namespace husk::bench_tool {

namespace {

double sum(const std::vector<ProfileRow>& rows) {
  double total = 0;
  for (const ProfileRow& row : rows) total += row.microseconds;
  return total;
}

// Adds up rows that have the same key, and sorts the sums.
template <class Key>
std::vector<ProfileRow> group(const std::vector<ProfileRow>& steps, Key key) {
  std::map<std::pair<std::string, std::string>, ProfileRow> groups;
  for (const ProfileRow& step : steps) {
    const std::pair<std::string, std::string> name = key(step);
    ProfileRow& row = groups.try_emplace(name, ProfileRow{name.first, name.second, "", "", 0})
                          .first->second;
    ++row.steps;
    row.microseconds += step.microseconds;
    row.constant_bytes += step.constant_bytes;
  }
  std::vector<ProfileRow> rows;
  for (auto& [name, row] : groups) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.microseconds > b.microseconds;
  });
  return rows;
}

// A step or a module in a picture: it begins at `start`, in microseconds, and lies below `depth`
// modules.
struct Span {
  std::string name, detail;
  double start, length;
  size_t depth;
};

std::vector<std::string> path_parts(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// The steps and their modules as spans. Neighbouring steps share the spans of modules that both lie
// in.
std::vector<Span> spans_of(const std::vector<ProfileRow>& steps) {
  std::vector<Span> spans;
  std::vector<size_t> open;  // the spans of the modules that the last step lies in
  std::vector<std::string> last;
  double now = 0;
  for (const ProfileRow& step : steps) {
    const std::vector<std::string> path = path_parts(module_of(step.origin));
    size_t common = 0;
    while (common < std::min(path.size(), last.size()) && path[common] == last[common]) ++common;
    open.resize(common);
    for (size_t d = common; d < path.size(); ++d) {
      open.push_back(spans.size());
      spans.push_back({path[d], "", now, 0, d});
    }
    for (const size_t module : open) spans[module].length += step.microseconds;
    spans.push_back({step.name.empty() ? step.kind : step.name, step.origin, now, step.microseconds,
                     path.size()});
    last = path;
    now += step.microseconds;
  }
  return spans;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

// The column of bytes a second of a row, or its head for no row; empty if no row has bytes.
std::string speed(const std::vector<ProfileRow>& rows, const ProfileRow* row) {
  if (std::all_of(rows.begin(), rows.end(),
                  [](const ProfileRow& one) { return one.constant_bytes == 0; }))
    return "";
  if (!row) return fmt::format(" {:>6}", "GB/s");
  if (row->constant_bytes == 0) return std::string(7, ' ');
  return fmt::format(" {:>6.1f}", static_cast<double>(row->constant_bytes) /
                                      std::max(row->microseconds, 1e-9) / 1000);
}

std::string table(const std::vector<ProfileRow>& rows, const char* head) {
  const double total = std::max(sum(rows), 1e-9);
  std::string out = fmt::format("{:>10} {:>6}{} {:>6}  {}\n", "us", "%", speed(rows, nullptr),
                                "steps", head);
  for (const ProfileRow& row : rows) {
    std::string text = row.kind.empty() ? row.name : fmt::format("{:<6} {}", row.kind, row.name);
    if (text.empty()) text = "(no module)";
    out += fmt::format("{:>10.2f} {:>6.1f}{} {:>6}  {}\n", row.microseconds,
                       100 * row.microseconds / total, speed(rows, &row), row.steps, text);
  }
  return out;
}

}  // namespace

void Profile::attach(husk_session_options& options) {
  options.trace_user = this;
  options.trace = [](void* user, const husk_trace_event* event) {
    Profile& profile = *static_cast<Profile*>(user);
    if (event->step >= profile.position_.size())
      profile.position_.resize(event->step + size_t{1}, SIZE_MAX);
    size_t& position = profile.position_[event->step];
    if (position == SIZE_MAX) {
      position = profile.steps_.size();
      const bool launch = std::strcmp(event->kind, "launch") == 0;
      profile.steps_.push_back(
          {{event->kind, event->name,
            launch ? fmt::format("{} {} {}", event->grid[0], event->grid[1], event->grid[2]) : "",
            event->origin, 1, 0, event->clock, event->step},
           {}});
    }
    profile.steps_[position].microseconds.push_back(static_cast<double>(event->nanoseconds) / 1000);
  };
}

void Profile::clear() {
  steps_.clear();
  position_.clear();
}

std::vector<ProfileRow> Profile::steps() const {
  std::vector<ProfileRow> rows;
  for (const Step& step : steps_) {
    rows.push_back(step.row);
    rows.back().microseconds = distribution_of(step.microseconds).p50;
  }
  return rows;
}

std::vector<ProfileRow> Profile::by_operator(const std::vector<ProfileRow>& steps) {
  return group(steps, [](const ProfileRow& step) { return std::pair(step.kind, step.name); });
}

std::vector<ProfileRow> Profile::by_module(const std::vector<ProfileRow>& steps) {
  return group(steps, [](const ProfileRow& step) {
    return std::pair(std::string(), module_of(step.origin));
  });
}

std::string module_of(const std::string& origin) {
  const std::string first = origin.substr(0, origin.find(' '));
  // A module is followed by a line, "layers.0 model.py:12 x + 1", or stands alone. A first word
  // with a colon is a line.
  if (first.find(':') != first.npos) return "";
  const std::string rest = first.size() < origin.size() ? origin.substr(first.size() + 1) : "";
  const std::string second = rest.substr(0, rest.find(' '));
  return rest.empty() || second.find(':') != second.npos ? first : "";
}

std::string clock_name(const std::vector<ProfileRow>& steps) {
  bool device = false, host = false;
  for (const ProfileRow& step : steps) (step.clock == HUSK_CLOCK_DEVICE ? device : host) = true;
  return device && host ? "device and host" : device ? "device" : "host";
}

std::string profile_tables(const std::vector<ProfileRow>& steps) {
  size_t name = 4, grid = 4;
  for (const ProfileRow& row : steps) {
    name = std::max(name, row.name.size());
    grid = std::max(grid, row.grid.size());
  }
  const double total = std::max(sum(steps), 1e-9);
  std::string out = fmt::format("{:>5} {:>10} {:>6}{}  {:<6} {:<{}}  {:<{}}  {}\n", "step", "us",
                                "%", speed(steps, nullptr), "kind", "name", name, "grid", grid,
                                "origin");
  for (size_t i = 0; i < steps.size(); ++i) {
    const ProfileRow& row = steps[i];
    std::string line = fmt::format("{:>5} {:>10.2f} {:>6.1f}{}  {:<6} {:<{}}  {:<{}}  {}", i,
                                   row.microseconds, 100 * row.microseconds / total,
                                   speed(steps, &row), row.kind, row.name, name, row.grid, grid,
                                   row.origin);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  out += fmt::format("{} steps, {:.2f} us by the clock of the {}\n\n", steps.size(), sum(steps),
                     clock_name(steps));
  out += table(Profile::by_operator(steps), "operator") + "\n";
  return out + table(Profile::by_module(steps), "module");
}

std::string profile_trace(const std::vector<ProfileRow>& steps, const std::string& title) {
  using Json = nlohmann::json;
  Json events = Json::array();
  events.push_back({{"ph", "M"},
                    {"pid", 0},
                    {"name", "process_name"},
                    {"args", {{"name", title + ", clock of the " + clock_name(steps)}}}});
  for (const Span& span : spans_of(steps)) {
    Json event = {{"ph", "X"},         {"pid", 0},         {"tid", 0},
                  {"name", span.name}, {"ts", span.start}, {"dur", span.length}};
    if (!span.detail.empty()) event["args"] = {{"origin", span.detail}};
    events.push_back(std::move(event));
  }
  const Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string profile_picture(const std::vector<ProfileRow>& steps, const std::string& title) {
  constexpr double kWidth = 1200, kMargin = 20, kRow = 22, kHead = 36, kLetter = 6.2;
  const double total = std::max(sum(steps), 1e-9), scale = (kWidth - 2 * kMargin) / total;
  const std::vector<Span> spans = spans_of(steps);
  size_t depth = 0;
  for (const Span& span : spans) depth = std::max(depth, span.depth);
  const double height = kHead + static_cast<double>(depth + 1) * kRow + kMargin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}: {4:.1f} us in {5} steps, clock of the "
      "{6}</text>\n",
      kWidth, height, kMargin, escaped(title), total, steps.size(), clock_name(steps));
  for (const Span& span : spans) {
    // Equal names have equal colours.
    const size_t hue = std::hash<std::string>()(span.name) % 360;
    const double width = span.length * scale, x = kMargin + span.start * scale,
                 y = kHead + static_cast<double>(span.depth) * kRow;
    out += fmt::format(
        "<g><title>{}: {:.2f} us, {:.1f} %{}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" "
        "width=\"{:.2f}\" height=\"{}\" fill=\"hsl({},55%,78%)\" stroke=\"#fff\" "
        "stroke-width=\"0.5\"/>",
        escaped(span.name), span.length, 100 * span.length / total,
        span.detail.empty() ? "" : ", " + escaped(span.detail), x, y, width, kRow - 1, hue);
    const auto letters = static_cast<size_t>(std::max(width / kLetter - 1, 0.0));
    if (letters >= 3) {
      out += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"11\">{}</text>", x + 3,
                         y + 15, escaped(span.name.substr(0, letters)));
    }
    out += "</g>\n";
  }
  return out + "</svg>\n";
}

}  // namespace husk::bench_tool
