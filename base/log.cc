#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/text.h"

namespace hutch {
namespace {

// The one mutable global that the style allows; a reload changes it while other threads log.
std::atomic<LogFormat> g_format = LogFormat::kText;
std::atomic<LogLevel> g_minimum = LogLevel::kInfo;

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};
constexpr const char* kPrefixes[] = {"<7>", "<6>", "<4>", "<3>"};  // sd-daemon(3) priorities

void AppendEscaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out.append({'\\', c});
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte == 0x7f) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", byte);
      out += buffer;
    } else
      out += c;
  }
}

void AppendPair(std::string& out, std::string_view key, std::string_view value,
                const char* separator) {
  out.append(separator).append("\"").append(key).append("\":\"");
  AppendEscaped(out, value);
  out += '"';
}

}  // namespace

void ConfigureLog(LogFormat format, LogLevel minimum) {
  g_format = format;
  g_minimum = minimum;
}

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (level < g_minimum) return;
  const auto index = static_cast<size_t>(level);
  std::string line;
  if (g_format == LogFormat::kJson) {
    AppendPair(line, "time", FormatRfc3339(std::chrono::system_clock::now()), "{");
    AppendPair(line, "level", kLevelNames[index], ",");
    AppendPair(line, "message", message, ",");
    for (const auto& [key, value] : fields) AppendPair(line, key, value, ",");
    line += "}\n";
  } else {
    static const bool journal = ::getenv("JOURNAL_STREAM") != nullptr;
    line = journal
               ? kPrefixes[index]
               : FormatRfc3339(std::chrono::system_clock::now()) + " " + kLevelNames[index] + " ";
    line += message;
    for (const auto& [key, value] : fields) {
      line.append(" ").append(key).append("=\"");
      AppendEscaped(line, value);
      line += '"';
    }
    line += '\n';
  }
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nowhere left to complain
}

}  // namespace hutch
