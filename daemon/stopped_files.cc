#include "daemon/stopped_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "daemon/limits.h"
#include "oci/json.h"
#include "rootfs/layer_tar.h"
#include "rootfs/tree_copy.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kStoppedVersion = 1;
constexpr char kRecordName[] = "record.json";
constexpr char kScratchName[] = "scratch";
constexpr char kHalfMade[] = ".new-";
constexpr char kForgotten[] = ".gone-";
constexpr size_t kGoneCharacters = 16;

std::string PrintRecord(const StoppedRecord& record) {
  return oci::PrintJson({{"version", kStoppedVersion},
                         {"id", record.id},
                         {"trees", record.trees},
                         {"files", record.files},
                         {"bytes", record.bytes},
                         {"saved", record.saved}});
}

}  // namespace

bool StoppedFiles::Has(const std::string& id) const { return PathExists(directory_ + "/" + id); }

std::vector<std::string> StoppedFiles::List() const {
  std::vector<std::string> ids;
  const Result<std::vector<std::string>> names = ListDirectory(directory_);
  if (!names.has_value()) return ids;  // nothing was ever stopped
  for (const std::string& name : *names)
    if (!name.starts_with('.')) ids.push_back(name);
  return ids;
}

Result<StoppedRecord> StoppedFiles::Load(const std::string& id) const {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(directory_ + "/" + id + "/" + kRecordName, 2 * kMaxSandboxRecordBytes));
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = 2 * kMaxSandboxRecordBytes}));
  StoppedRecord record;
  uint64_t version = 0;
  RETURN_IF_ERROR(oci::ObjectReader(json, "")
                      .Uint("version", &version)
                      .String("id", &record.id)
                      .StringMap("trees", &record.trees)
                      .Uint("files", &record.files)
                      .Uint("bytes", &record.bytes)
                      .String("saved", &record.saved, kMaxSandboxRecordBytes)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  if (version == kStoppedVersion && record.id == id) return record;
  return Error{
      .code = version > kStoppedVersion ? Code::kUnsupported : Code::kCorrupt,
      .what = "the record of stopped sandbox " + id + " has version " + std::to_string(version),
      .field = "version"};
}

Status StoppedFiles::Sync() const { return SyncPath(directory_, O_DIRECTORY); }

Result<StoppedRecord> StoppedFiles::Fill(const std::string& path, StoppedRecord record,
                                         const runtime::ScratchToFill& scratch,
                                         const std::atomic<bool>& cancelled) const {
  RETURN_IF_ERROR(MakeDirectories(path + "/" + kScratchName, 0700));
  for (const rootfs::TrackedRoot& root : rootfs::SealedRoots(scratch.roots)) {
    const std::string number = std::to_string(record.trees.size());
    const std::string copy = path + "/" + kScratchName + "/" + number;
    RETURN_IF_ERROR(MakeDirectories(copy, 0700));
    ASSIGN_OR_RETURN(const UniqueFd from,
                     OpenAt(scratch.fd.get(), root.source, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    ASSIGN_OR_RETURN(const UniqueFd to, Open(copy, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    ASSIGN_OR_RETURN(const rootfs::TreeCopied copied,
                     rootfs::CopyTree({.source = from.get(),
                                       .target = to.get(),
                                       .from_start = scratch.host_id_start,
                                       .to_start = 0,
                                       .cancelled = &cancelled}));
    record.trees[root.target] = number;
    record.files += copied.files;
    record.bytes += copied.bytes;
  }
  RETURN_IF_ERROR(
      WriteFileAtomic(path + "/" + kRecordName, PrintRecord(record), Durability::kDisk));
  ASSIGN_OR_RETURN(const UniqueFd directory, Open(path, O_RDONLY | O_DIRECTORY));
  if (::syncfs(directory.get()) != 0) return SysError(errno, "syncfs of " + path);
  return record;
}

Result<StoppedRecord> StoppedFiles::Put(StoppedRecord record, const runtime::ScratchToFill& scratch,
                                        const std::atomic<bool>& cancelled) const {
  const std::string id = record.id;
  const std::string half = directory_ + "/" + kHalfMade + id;
  RETURN_IF_ERROR(RemoveTree(half));
  Result<StoppedRecord> filled = Fill(half, std::move(record), scratch, cancelled);
  if (filled.has_value() && Has(id)) {
    const Result<std::string> older = Forget(id);
    if (!older.has_value()) filled = older.error();
    if (older.has_value()) IgnoreError(RemoveTree(*older), "the next start removes it");
  }
  if (filled.has_value() && cancelled) filled = Error{.code = Code::kBadState, .what = "given up"};
  if (filled.has_value() && ::rename(half.c_str(), (directory_ + "/" + id).c_str()) != 0)
    filled = SysError(errno, "rename " + half);
  if (!filled.has_value()) {
    IgnoreError(RemoveTree(half), "the next start removes it");
    return filled;
  }
  RETURN_IF_ERROR(Sync());
  return filled;
}

Status StoppedFiles::PutBack(const std::string& id, const runtime::ScratchToFill& scratch,
                             const std::atomic<bool>& cancelled) const {
  ASSIGN_OR_RETURN(const StoppedRecord record, Load(id));
  std::map<std::string, std::string> sources;
  for (const rootfs::TrackedRoot& root : scratch.roots) sources[root.target] = root.source;
  for (const auto& [place, number] : record.trees) {
    const auto source = sources.find(place);
    if (source == sources.end())
      return Error{.code = Code::kCorrupt, .what = "there is no place for its files of " + place};
    ASSIGN_OR_RETURN(const UniqueFd from,
                     Open(directory_ + "/" + id + "/" + kScratchName + "/" + number,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    ASSIGN_OR_RETURN(const UniqueFd to,
                     OpenAt(scratch.fd.get(), source->second, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    RETURN_IF_ERROR(rootfs::CopyTree({.source = from.get(),
                                      .target = to.get(),
                                      .from_start = 0,
                                      .to_start = scratch.host_id_start,
                                      .cancelled = &cancelled}));
  }
  return OkStatus();
}

Result<std::string> StoppedFiles::Forget(const std::string& id) const {
  const std::string gone = directory_ + "/" + kForgotten + RandomBase32(kGoneCharacters);
  if (::rename((directory_ + "/" + id).c_str(), gone.c_str()) != 0) {
    if (errno == ENOENT) return std::string();
    return SysError(errno, "rename " + gone);
  }
  RETURN_IF_ERROR(Sync());
  return gone;
}

std::vector<std::string> StoppedFiles::SetAside() const {
  std::vector<std::string> paths;
  const Result<std::vector<std::string>> names = ListDirectory(directory_);
  if (!names.has_value()) return paths;
  for (const std::string& name : *names) {
    if (name.starts_with(kForgotten)) paths.push_back(directory_ + "/" + name);
    if (!name.starts_with(kHalfMade)) continue;
    Result<std::string> gone = Forget(name);
    if (gone.has_value()) paths.push_back(std::move(*gone));
  }
  return paths;
}

}  // namespace hutch::daemon
