#include "cgroups/pressure.h"

#include <charconv>
#include <string>

#include "base/text.h"
#include "cgroups/controllers.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {
namespace {

template <class Number>
bool Parse(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
std::optional<PressureLine> ParseLine(std::string_view text) {
  PressureLine line;
  size_t known = 0;
  for (const std::string& word : Split(text, ' ')) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const std::string_view value = std::string_view(word).substr(equals + 1);
    const bool parsed = name == "avg10"    ? Parse(value, &line.avg10)
                        : name == "avg60"  ? Parse(value, &line.avg60)
                        : name == "avg300" ? Parse(value, &line.avg300)
                        : name == "total"  ? Parse(value, &line.total_us)
                                           : false;
    known += parsed ? 1 : 0;
  }
  if (known != 4) return std::nullopt;
  return line;
}

}  // namespace

std::optional<Pressure> ParsePressure(std::string_view text) {
  std::optional<PressureLine> some, full;
  for (const std::string& line : Split(text, '\n')) {
    if (line.starts_with("some ")) some = ParseLine(line);
    if (line.starts_with("full ")) full = ParseLine(line);
  }
  if (!some) return std::nullopt;
  return Pressure{.some = *some, .full = full};
}

// The v2 tree has them in both modes: they need no controller.
Pressures SandboxGroup::ReadPressure() const {
  const auto read = [&](const char* file) {
    return ParsePressure(ReadText(work_dir_.get(), file));
  };
  return {
      .cpu = read("cpu.pressure"), .memory = read("memory.pressure"), .io = read("io.pressure")};
}

}  // namespace hutch::cgroups
