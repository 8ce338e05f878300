// The networks that sandboxes join: their names, subnets and members, and the addresses that they
// are told to each other by. On the loop's thread; what the kernel and the disk do happens on the
// worker's one thread, in the order of the calls.
//
// A network's namespace is made when its first member joins and is held by hutchd alone, so that
// it and every link into it end with hutchd, whatever ends it: nothing stays behind that anybody
// would have to find. What is kept is who has which address; after a restart the members are joined
// anew, with the same addresses, so that connections among them go on. Until then they do not reach
// each other, and nobody else reaches them either.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/config.h"
#include "daemon/loop.h"
#include "daemon/worker.h"
#include "network/workspace.h"
#include "oci/json.h"

namespace hutch::daemon {

// network/workspace.h, or what a test has in its place.
struct WorkspaceKernel {
  std::function<Result<UniqueFd>(const network::WorkspaceSubnet&)> make;
  std::function<Status(int workspace, int sandbox, const std::string& link, const network::Member&)>
      join;
  std::function<Status(int sandbox, const std::string& link)> leave;
};
WorkspaceKernel RealWorkspaceKernel();

class Workspaces {
 public:
  // Addresses by the names that a sandbox may ask for: EgressSettings::hosts.
  using Hosts = std::map<std::string, std::vector<network::Address>>;
  using Done = std::function<void(const Status&)>;

  // `worker` has one thread. The configuration is checked.
  Workspaces(Loop& loop, Worker& worker, const Config& config, WorkspaceKernel kernel);
  ~Workspaces();
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  // Reads what the last daemon wrote, and forgets members that do not live any more. Blocks; before
  // the loop runs. A file that cannot be read is moved aside as *.broken, and said to be.
  // kInvalidArgument for networks that the pools have no room for. Then Join() each of the living.
  Status Recover(const std::set<std::string>& living);

  // `done` is called later, on the loop's thread, once it is on disk. kInvalidArgument, kExists,
  // kLimit (of networks, or of the pools).
  void Create(const std::string& name, Done done);
  // kNotFound; kBadState while it has members.
  void Remove(const std::string& name, Done done);
  bool Exists(const std::string& name) const { return networks_.contains(name); }
  Result<oci::Json> ToJson(const std::string& name) const;
  oci::Json ListJson() const;

  // Puts a sandbox into a network; `sandbox_fd` (its namespace or a pidfd) is borrowed for the call
  // only. Its address is the one that it had before, if it had one. Joining twice is joining anew.
  // kNotFound, kLimit; kKernel after everything has been undone.
  void Join(const std::string& network, const std::string& id, const std::string& sandbox_name,
            int sandbox_fd, Done done);
  // Takes a living sandbox out of a network. Not a member: success. On error it is still one.
  void Leave(const std::string& network, const std::string& id, int sandbox_fd, Done done);
  // A sandbox is gone, and its links with it.
  void Forget(const std::string& id);

  // Members of the networks that `id` is in, itself included, by their names and ids. A name with a
  // dot is left out: it could be one of the internet's. So is one that an earlier member has.
  Hosts HostsFor(const std::string& id) const;
  std::vector<std::string> NetworksOf(const std::string& id) const;
  // Called on the loop's thread with the sandboxes whose Hosts are others now.
  void OnHostsChanged(std::function<void(const std::set<std::string>& ids)> callback) {
    changed_ = std::move(callback);
  }

 private:
  struct Member {
    std::string name;     // of the sandbox; may be empty
    std::string link;     // inside
    uint32_t host = 0;    // the last part of its addresses
    uint64_t order = 0;   // less: joined earlier, in whatever network
    uint64_t turn = 0;    // of the last call for it
    bool joined = false;  // its link is there; false: known from before, or on its way
  };
  struct Namespace {
    UniqueFd fd;  // the worker's alone
  };
  struct Network {
    uint32_t index = 0;                     // of its subnets in the pools
    uint32_t last_host = 0;                 // given out
    std::map<std::string, Member> members;  // by id
    std::shared_ptr<Namespace> space = std::make_shared<Namespace>();
  };

  network::WorkspaceSubnet SubnetOf(const Network& network) const;
  network::Member AddressesOf(const Network& network, const Member& member) const;
  oci::Json NetworkJson(const std::string& name, const Network& network) const;
  enum class Kept { kNothing, kNetworks, kMembers };
  std::string Text(Kept kept) const;  // of its file
  Status Read(const std::string& path, Kept kept);
  Status ReadNetwork(const oci::Json& json, Kept kept);
  bool ReadOrSetAside(const std::string& path, Kept kept);
  // Writes the file on the worker, runs `job` there with what came of that, then calls `done`; one
  // after the other, so that any number may wait.
  void Submit(Kept kept, std::function<Status(const Status& written)> job, Done done);
  void StartJob();
  void Save();
  void Changed(const Network& network);
  Network* NetworkWith(const std::string& name, const std::string& id);  // nullptr: no such member
  std::string FreeLink(const std::string& id) const;
  static std::optional<uint32_t> FreeHost(const Network& network);

  Loop& loop_;
  Worker& worker_;
  const std::string networks_path_, members_path_;
  const network::Cidr pool_v4_, pool_v6_;
  const WorkspaceKernel kernel_;
  std::map<std::string, Network> networks_;
  uint64_t last_turn_ = 0;
  std::function<void(const std::set<std::string>&)> changed_;
  struct Job {
    Kept kept;
    std::function<Status(const Status&)> run;
    Done done;
  };
  std::deque<Job> jobs_;                                        // the first is on the worker
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what the worker posts
};

}  // namespace hutch::daemon
