// ps.
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "tools/hutch_oci_commands.h"

namespace hutch::tools {
namespace {

constexpr size_t kProcFileBytes = 65536;
// Of /proc/<pid>/stat, counted from the state behind the name: proc_pid_stat(5) less 3.
constexpr size_t kParentField = 1, kTerminalField = 4, kUserTimeField = 11, kSystemTimeField = 12,
                 kStartTimeField = 19;
constexpr unsigned kPtsMajor = 136;

uint64_t NumberAt(const std::vector<std::string>& fields, size_t index) {
  const Result<uint64_t> number = ParseUint(index < fields.size() ? fields[index] : "");
  return number ? *number : 0;
}

std::string TerminalName(uint64_t device) {
  if (device == 0) return "?";
  const unsigned number = major(device);
  if (number >= kPtsMajor && number < kPtsMajor + 8)
    return "pts/" + std::to_string(minor(device) + (number - kPtsMajor) * 256);
  return "tty" + std::to_string(minor(device));
}

// The moment as ps(1) -f tells it: the hour of today, else the day.
std::string StartText(double seconds_ago) {
  using Clock = std::chrono::system_clock;
  const std::time_t now = Clock::to_time_t(Clock::now());
  const auto then = now - static_cast<std::time_t>(seconds_ago);
  std::tm today{}, start{};
  ::localtime_r(&now, &today);
  ::localtime_r(&then, &start);
  const bool same = today.tm_year == start.tm_year && today.tm_yday == start.tm_yday;
  char text[16];
  const size_t n = std::strftime(text, sizeof text, same ? "%H:%M" : "%b%d", &start);
  return {text, n};
}

std::string CommandOf(const std::string& process, const std::string& name) {
  const Result<std::string> line = ReadFile(process + "/cmdline", kProcFileBytes);
  if (!line || line->empty()) return "[" + name + "]";
  std::string command = *line;
  while (!command.empty() && command.back() == '\0') command.pop_back();
  for (char& c : command)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';  // no escapes to the terminal
  return command;
}

// One row in the columns of `ps -ef`; nothing for a process that has ended meanwhile.
void PrintRow(pid_t pid, double uptime) {
  const std::string process = "/proc/" + std::to_string(pid);
  struct stat st;
  const Result<std::string> text = ReadFile(process + "/stat", kProcFileBytes);
  if (!text || ::stat(process.c_str(), &st) != 0) return;
  const size_t open = text->find('('), close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  const std::string name = text->substr(open + 1, close - open - 1);
  const std::vector<std::string> fields = Split(Trim(text->substr(close + 1)), ' ');
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto used =
      static_cast<double>(NumberAt(fields, kUserTimeField) + NumberAt(fields, kSystemTimeField)) /
      ticks;
  const double age = uptime - static_cast<double>(NumberAt(fields, kStartTimeField)) / ticks;
  const auto whole = static_cast<unsigned>(used);
  const passwd* entry = ::getpwuid(st.st_uid);
  const std::string owner = entry != nullptr ? entry->pw_name : std::to_string(st.st_uid);
  std::printf("%-8s %7d %7llu %2.0f %5s %-8s %02u:%02u:%02u %s\n", owner.c_str(), pid,
              static_cast<unsigned long long>(NumberAt(fields, kParentField)),
              age > 0 ? 100 * used / age : 0, StartText(age).c_str(),
              TerminalName(NumberAt(fields, kTerminalField)).c_str(), whole / 3600, whole / 60 % 60,
              whole % 60, CommandOf(process, name).c_str());
}

Result<int> PrintTable(const std::vector<pid_t>& pids) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/uptime", kProcFileBytes));
  const double uptime = std::atof(text.c_str());
  std::printf("%-8s %7s %7s %2s %5s %-8s %8s %s\n", "UID", "PID", "PPID", "C", "STIME", "TTY",
              "TIME", "CMD");
  for (const pid_t pid : pids) PrintRow(pid, uptime);
  return 0;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// With options of ps(1) it is that program's table, for these processes only.
Result<int> FilterPs(const std::vector<pid_t>& pids, const std::vector<std::string>& options) {
  std::string command = "ps";
  for (const std::string& option : options) command += " " + Quoted(option);
  FILE* table = ::popen(command.c_str(), "re");
  if (table == nullptr) return SysError(errno, "ps");
  char line[4096];
  size_t column = 0;
  for (bool header = true; std::fgets(line, sizeof line, table) != nullptr; header = false) {
    std::vector<std::string> fields = Split(line, ' ');
    std::erase(fields, "");
    if (header) {
      while (column < fields.size() && Trim(fields[column]) != "PID") ++column;
      std::fputs(line, stdout);
      continue;
    }
    for (const pid_t pid : pids)
      if (column < fields.size() && Trim(fields[column]) == std::to_string(pid))
        std::fputs(line, stdout);
  }
  if (::pclose(table) != 0) return Error{.code = Code::kKernel, .what = "ps failed"};
  return 0;
}

}  // namespace

OciCommand AddPs(CLI::App& app, const OciGlobals& globals) {
  const auto id = std::make_shared<std::string>();
  const auto format = std::make_shared<std::string>("table");
  app.prefix_command();  // what follows the id is for ps(1)
  app.add_option("id", *id, "the container's name")->required();
  app.add_option("-f,--format", *format, "table or json")->check(CLI::IsMember({"table", "json"}));
  CLI::App* command = &app;
  return [id, format, command, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    ASSIGN_OR_RETURN(const std::vector<pid_t> pids, runtime::ContainerPids(host, *id));
    const std::vector<std::string> options = command->remaining();
    if (*format == "table") return options.empty() ? PrintTable(pids) : FilterPs(pids, options);
    std::printf("%s\n", oci::PrintJson(oci::Json(pids)).c_str());
    return 0;
  };
}

}  // namespace hutch::tools
