// What lives, in files that survive the host: <state-dir>/sandboxes/<id>.json. A sandbox itself
// does not, but that it was there is told.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/worker.h"

namespace hutch::daemon {

struct HostRecord {
  std::string id = {};
  std::string saved = {};     // SaveFacts'
  bool of_this_boot = false;  // the host was not started again since
};

class HostRecords {
 public:
  HostRecords(std::string directory, Loop& loop);
  ~HostRecords();  // writes through what is not yet

  // Without waiting for the disk: it is in the page cache if only we die, and written through
  // kRecordsBehind later, with what else changed until then.
  void Write(const std::string& id, const std::string& saved);
  void Forget(const std::string& id);
  // Writes one through, for what is done next to be on the disk only after it. On any thread.
  void Sync(const std::string& id) const;
  // Those that cannot be read are logged and left where they are; what a power cut has left
  // without a content goes.
  std::vector<HostRecord> Load();

 private:
  std::string PathOf(const std::string& id) const;
  void Remove(const std::string& path) const;
  void Changed(const std::string& id);
  void SyncAll(const std::set<std::string>& ids) const;

  const std::string directory_;
  std::string boot_id_;
  Loop& loop_;
  std::set<std::string> changed_;  // and not written through
  Timer timer_;
  Worker worker_;  // last: its jobs end before the rest goes
};

}  // namespace hutch::daemon
