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

void WriteOciLog(const std::string& path, const std::string& format, const char* level,
                 const std::string& message) {
  if (path.empty()) return;
  const std::string time = FormatRfc3339(std::chrono::system_clock::now());
  const std::string line =
      format == "json"
          ? oci::PrintJson({{"level", level}, {"msg", message}, {"time", time}})
          : "time=" + time + " level=" + level + " msg=" + oci::PrintJson(oci::Json(message));
  const Result<UniqueFd> file = Open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file) IgnoreError(WriteAll(file->get(), line + "\n"), "stderr has it, too");
}

}  // namespace hutch::tools
