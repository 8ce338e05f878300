#include "daemon/host_records.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kHostRecordVersion = 1;
constexpr size_t kBootIdBytes = 64;
constexpr std::string_view kEnding = ".json";
constexpr std::string_view kHalfMade = ".tmp";  // WriteFileAtomic's

Result<HostRecord> Parse(const std::string& id, const std::string& text,
                         const std::string& boot_id) {
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

HostRecords::HostRecords(std::string directory, Loop& loop)
    : directory_(std::move(directory)), loop_(loop), worker_(1) {
  const Result<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id", kBootIdBytes);
  if (id.has_value()) boot_id_ = id->substr(0, id->find('\n'));
}

HostRecords::~HostRecords() {
  if (!changed_.empty()) SyncAll(changed_);
}

std::string HostRecords::PathOf(const std::string& id) const {
  return directory_ + "/" + id + std::string(kEnding);
}

void HostRecords::Write(const std::string& id, const std::string& saved) {
  Status written = MakeDirectories(directory_, 0700);
  if (written.has_value())
    written = WriteFileAtomic(
        PathOf(id),
        oci::PrintJson({{"version", kHostRecordVersion}, {"boot_id", boot_id_}, {"saved", saved}}),
        Durability::kMemory);
  if (!written.has_value())
    Log(LogLevel::kWarning, "a sandbox would not be remembered after a start of the host",
        {{"sandbox", id}, {"error", written.error().ToString()}});
  Changed(id);
}

void HostRecords::Forget(const std::string& id) {
  Remove(PathOf(id));
  Changed(id);
}

void HostRecords::Remove(const std::string& path) const {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    Log(LogLevel::kWarning, "cannot remove the record of a sandbox",
        {{"error", SysError(errno, "unlink " + path).ToString()}});
}

// The first change of some starts the time, so that it is bounded.
void HostRecords::Changed(const std::string& id) {
  changed_.insert(id);
  if (timer_.running()) return;
  timer_.Start(loop_, kRecordsBehind, [this] {
    const Status begun = worker_.Submit([this, ids = changed_] { SyncAll(ids); });
    if (begun.has_value()) changed_.clear();  // otherwise they go with the next ones
  });
}

void HostRecords::Sync(const std::string& id) const { SyncAll({id}); }

void HostRecords::SyncAll(const std::set<std::string>& ids) const {
  const auto sync = [](const std::string& path, int flags) {
    const Status synced = SyncPath(path, flags);
    if (synced.has_value() || synced.error().code == Code::kNotFound) return;  // forgotten
    Log(LogLevel::kWarning, "a sandbox would not be remembered after a power cut",
        {{"error", synced.error().ToString()}});
  };
  for (const std::string& id : ids) sync(PathOf(id), O_NOFOLLOW);
  sync(directory_, O_DIRECTORY);
}

std::vector<HostRecord> HostRecords::Load() {
  std::vector<HostRecord> records;
  const Result<std::vector<std::string>> names = ListDirectory(directory_);
  if (!names.has_value()) return records;  // none was ever made
  for (const std::string& name : *names) {
    const std::string path = directory_ + "/" + name;
    if (name.ends_with(kHalfMade)) Remove(path);
    if (!name.ends_with(kEnding)) continue;
    const std::string id = name.substr(0, name.size() - kEnding.size());
    const Result<std::string> text = ReadFile(path, 2 * kMaxSandboxRecordBytes);
    if (text.has_value() && text->empty()) {
      Forget(id);
      continue;
    }
    Changed(id);  // whoever wrote it may have been killed before it was on the disk
    Result<HostRecord> record =
        text.has_value() ? Parse(id, *text, boot_id_) : Result<HostRecord>(text.error());
    if (record.has_value())
      records.push_back(std::move(*record));
    else
      Log(LogLevel::kError, "the record of a sandbox cannot be read",
          {{"sandbox", id}, {"error", record.error().ToString()}});
  }
  return records;
}

}  // namespace hutch::daemon
