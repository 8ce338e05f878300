#include "tools/hutch_oci_log.h"

#include <fcntl.h>

#include <chrono>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"

namespace hutch::tools {

Status CheckOciLog(const std::string& path) {
  if (path.empty()) return OkStatus();
  const Result<UniqueFd> file = Open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  return file ? OkStatus() : Status(file.error());
}

std::string OciLogLine(const std::string& format, const char* level, const std::string& message) {
  const std::string time = FormatRfc3339(std::chrono::system_clock::now());
  if (format == "json")
    return oci::PrintJson({{"level", level}, {"msg", message}, {"time", time}}) + "\n";
  return "time=" + time + " level=" + level + " msg=" + oci::PrintJson(oci::Json(message)) + "\n";
}

void WriteOciLog(const std::string& path, const std::string& format, const char* level,
                 const std::string& message) {
  if (path.empty()) return;
  const Result<UniqueFd> file = Open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file)
    IgnoreError(WriteAll(file->get(), OciLogLine(format, level, message)), "stderr has it, too");
}

}  // namespace hutch::tools
