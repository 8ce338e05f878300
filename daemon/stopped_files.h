// Stopped sandboxes on disk: <state-dir>/stopped/<id> with record.json and the files it wrote. A
// directory is there whole or not at all. No state of its own: all but the constructor may be
// called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

struct StoppedRecord {
  std::string id;
  std::string saved;                         // SaveFacts'
  std::map<std::string, std::string> trees;  // directory on disk, by its place inside
  uint64_t files = 0, bytes = 0;
};

class StoppedFiles {
 public:
  explicit StoppedFiles(std::string directory) : directory_(std::move(directory)) {}

  // Copies the scratch file system, in which nothing runs any more; on disk when it returns. An
  // older one of that id is replaced. Errors as rootfs::CopyTree's; nothing is left then.
  Result<StoppedRecord> Put(StoppedRecord record, const runtime::ScratchToFill& scratch,
                            const std::atomic<bool>& cancelled) const;
  // Into a new scratch file system. kCorrupt when it has no place for one of the trees.
  Status PutBack(const std::string& id, const runtime::ScratchToFill& scratch,
                 const std::atomic<bool>& cancelled) const;
  // Forgotten, for good, when it returns; the path is then to be removed. Empty: it was not there.
  Result<std::string> Forget(const std::string& id) const;
  bool Has(const std::string& id) const;
  Result<StoppedRecord> Load(const std::string& id) const;
  std::vector<std::string> List() const;
  // What an earlier daemon left half made or forgotten; before anything else is called. The paths
  // are then to be removed.
  std::vector<std::string> SetAside() const;

 private:
  Result<StoppedRecord> Fill(const std::string& path, StoppedRecord record,
                             const runtime::ScratchToFill& scratch,
                             const std::atomic<bool>& cancelled) const;
  Status Sync() const;
  const std::string directory_;
};

}  // namespace hutch::daemon
