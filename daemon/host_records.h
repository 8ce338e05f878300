// What lives, in files that survive the host: <state-dir>/sandboxes/<id>.json. A sandbox itself
// does not, but that it was there is told.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::daemon {

struct HostRecord {
  std::string id = {};
  std::string saved = {};     // SaveFacts'
  bool of_this_boot = false;  // the host was not started again since
};

class HostRecords {
 public:
  explicit HostRecords(std::string directory);

  // Without waiting for the disk: it is on the way there, and in the page cache if only we die.
  void Write(const std::string& id, const std::string& saved) const;
  void Forget(const std::string& id) const;
  // Those that cannot be read are logged and left where they are.
  std::vector<HostRecord> Load() const;

 private:
  const std::string directory_;
  std::string boot_id_;
};

}  // namespace hutch::daemon
