#include "daemon/host_records.h"

#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kHostRecordVersion = 1;
constexpr size_t kBootIdBytes = 64;
constexpr std::string_view kEnding = ".json";

Result<HostRecord> Parse(const std::string& id, const std::string& path,
                         const std::string& boot_id) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 2 * kMaxSandboxRecordBytes));
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = 2 * kMaxSandboxRecordBytes}));
  HostRecord record{.id = id};
  uint64_t version = 0;
  std::string boot;
  RETURN_IF_ERROR(oci::ObjectReader(json, "")
                      .Uint("version", &version, kHostRecordVersion, kHostRecordVersion)
                      .String("boot_id", &boot)
                      .String("saved", &record.saved, kMaxSandboxRecordBytes)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  record.of_this_boot = boot == boot_id;
  return record;
}

}  // namespace

HostRecords::HostRecords(std::string directory) : directory_(std::move(directory)) {
  const Result<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id", kBootIdBytes);
  if (id.has_value()) boot_id_ = id->substr(0, id->find('\n'));
}

void HostRecords::Write(const std::string& id, const std::string& saved) const {
  Status written = MakeDirectories(directory_, 0700);
  if (written.has_value())
    written = WriteFileAtomic(
        directory_ + "/" + id + std::string(kEnding),
        oci::PrintJson({{"version", kHostRecordVersion}, {"boot_id", boot_id_}, {"saved", saved}}),
        Durability::kMemory);
  if (!written.has_value())
    Log(LogLevel::kWarning, "a sandbox would not be remembered after a start of the host",
        {{"sandbox", id}, {"error", written.error().ToString()}});
}

void HostRecords::Forget(const std::string& id) const {
  const std::string path = directory_ + "/" + id + std::string(kEnding);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    Log(LogLevel::kWarning, "cannot remove the record of a sandbox",
        {{"sandbox", id}, {"error", SysError(errno, "unlink " + path).ToString()}});
}

std::vector<HostRecord> HostRecords::Load() const {
  std::vector<HostRecord> records;
  const Result<std::vector<std::string>> names = ListDirectory(directory_);
  if (!names.has_value()) return records;  // none was ever made
  for (const std::string& name : *names) {
    if (!name.ends_with(kEnding)) continue;
    const std::string id = name.substr(0, name.size() - kEnding.size());
    Result<HostRecord> record = Parse(id, directory_ + "/" + name, boot_id_);
    if (record.has_value())
      records.push_back(std::move(*record));
    else
      Log(LogLevel::kError, "the record of a sandbox cannot be read",
          {{"sandbox", id}, {"error", record.error().ToString()}});
  }
  return records;
}

}  // namespace hutch::daemon
