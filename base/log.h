// The daemon's log: one line an event on stderr, as text (journald adds the time) or JSON. Only
// daemon/ and the programs' main functions log; everything below returns errors.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace hutch {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

using LogField = std::pair<std::string_view, std::string>;

// Set once in main, before threads.
void ConfigureLog(LogFormat format, LogLevel minimum);
// Thread-safe: one write(2) a line. Control characters in values are escaped.
void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace hutch
