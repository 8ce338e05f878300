// What outlives a command of hutch-oci: a directory for each container below --root, with its state
// file, a copy of its config.json as it was at the creation, and the socket that its first process
// waits at for `start`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/container_group.h"
#include "oci/json.h"

namespace hutch::runtime {

// The states of the specification, and `paused`, which runc has too.
enum class ContainerStatus { kCreating, kCreated, kRunning, kPaused, kStopped };
const char* ContainerStatusName(ContainerStatus status);

struct ContainerRecord {  // state.json
  std::string oci_version;
  std::string id;
  std::string bundle;       // absolute
  std::string rootfs;       // absolute
  std::string created;      // RFC 3339
  uint32_t owner = 0;       // uid of who made it
  pid_t pid = 0;            // of the first process, on the host; 0: none yet
  uint64_t start_time = 0;  // field 22 of /proc/<pid>/stat: with it a pid is not used by another
  bool systemd_cgroup = false;
  oci::Json group;  // cgroups::PrintGroupPlace
  std::map<std::string, std::string> annotations;
};

// 1 to 1024 characters of [A-Za-z0-9_+.-], not "." or "..": runc's rule and message.
Status CheckContainerId(std::string_view id);

// Field 22 of /proc/<pid>/stat; kNotFound when there is no such process or it has ended, with all
// its threads.
Result<uint64_t> ProcessStartTime(pid_t pid);

// Whether the first process of the container lives.
bool FirstProcessLives(const ContainerRecord& record);
// It and no other that has its number by now; kNotFound when it has ended.
Result<Pidfd> OpenFirstProcess(const ContainerRecord& record);

// A container's directory, opened and locked (flock) for as long as this lives.
class ContainerDirectory {
 public:
  enum class Lock { kNone, kExclusive };

  // Makes <root>/<id>, 0700, and its parents. kExists when it is there.
  static Result<ContainerDirectory> Make(const std::string& root, const std::string& id);
  // kNotFound, in runc's words, when there is none.
  static Result<ContainerDirectory> Open(const std::string& root, const std::string& id, Lock lock);

  const std::string& path() const { return path_; }
  Result<ContainerRecord> ReadRecord() const;
  Status WriteRecord(const ContainerRecord& record) const;
  Result<std::string> ReadConfig() const;
  Status WriteConfig(std::string_view text) const;

  // The socket of the start gate: listening; and a connection to it (kNotFound: no gate, kBadState:
  // nobody listens any more).
  Result<UniqueFd> ListenAtGate() const;
  Result<UniqueFd> ConnectToGate() const;
  bool HasGate() const;
  Status RemoveGate() const;

  // For as long as somebody else needs the container: the lock goes, the descriptor stays.
  void Unlock() const;
  Status Remove() const;

 private:
  ContainerDirectory(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// The group that the record names, opened; none for a container without.
Result<std::optional<cgroups::ContainerGroup>> GroupOf(const ContainerRecord& record);

// The copy of config.json; "" for what is no id.
std::string ConfigFileOf(const std::string& root, const std::string& id);

// Ids of all containers below root, sorted; none when there is no such directory.
Result<std::vector<std::string>> ListContainers(const std::string& root);

// The state as the specification prints it; `pid` only while the process lives.
oci::Json StateDocument(const ContainerRecord& record, ContainerStatus status);

}  // namespace hutch::runtime
