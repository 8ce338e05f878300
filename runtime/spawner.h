// hutchd's side of the spawn server: starts it, asks it for agents, hears of their ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"

namespace hutch::runtime {

struct SpawnOrder {
  uint64_t number;
  uint32_t host_id_start;
  std::string hostname;
  int cgroup_fd, conn_fd, listen_fd, netns_fd;  // borrowed
  std::span<const UniqueFd> v1_procs;           // cgroup.procs files of the v1 groups to join
};

struct SpawnOutcome {
  enum class Kind { kSpawned, kFailed, kExited, kServerEnded };
  Kind kind = Kind::kFailed;
  uint64_t number = 0;
  pid_t pid = 0;
  int wait_status = 0;
  Pidfd pidfd;                      // kSpawned
  UniqueFd userns;                  // kSpawned
  std::optional<Error> error = {};  // kFailed
};

class Spawner {
 public:
  // `init_memfd`: the sealed hutch-init, borrowed for the call. The server gets a cgroup leaf of
  // its own (cgroups/tree.h).
  static Result<Spawner> Start(int init_memfd, const cgroups::Tree& tree);
  int fd() const { return socket_.get(); }
  pid_t pid() const { return process_.pid(); }
  Status Send(const SpawnOrder& order) const;
  std::vector<SpawnOutcome> Receive() const;  // everything there is, without blocking

 private:
  UniqueFd socket_;
  Pidfd process_;
};

}  // namespace hutch::runtime
