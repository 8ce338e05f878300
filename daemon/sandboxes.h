// The registry: every living sandbox, from its request to its complete removal. On the loop's
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "cgroups/tree.h"
#include "daemon/audit.h"
#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/cpu_turns.h"
#include "daemon/forwards.h"
#include "daemon/image_users.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/sandbox_entry.h"
#include "daemon/sandbox_networks.h"
#include "daemon/user_layers.h"
#include "rootfs/store.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

class Watching;

class Sandboxes {
 public:
  struct Parts {  // all borrowed
    Loop& loop;
    const Config& config;
    runtime::Runtime& runtime;
    rootfs::Store& store;
    cgroups::Mode mode;
    uint64_t host_memory_bytes;
    uint32_t host_cpus;
    Audit* audit = nullptr;               // without it ends are not recorded
    Forwards* forwards = nullptr;         // without it nothing inside is reached
    Worker* walker = nullptr;             // for large looks at files; without it none are tracked
    SandboxNetworks* networks = nullptr;  // without it none but closed ones are made
    Watching* watching = nullptr;         // without it nobody is told
  };
  using Created = std::function<void(Result<SandboxEntry*>)>;
  using Removed = std::function<void(const Status&)>;

  explicit Sandboxes(const Parts& parts);
  ~Sandboxes();

  // Takes up what the last daemon left running; removes the rest. Then Start().
  Status Recover();
  void Start();
  // Called to ask whether requests are under way: pools are topped up when none are.
  void SetBusyCheck(std::function<bool()> busy) { busy_ = std::move(busy); }

  // Returns the id of what is being made. `created` is called later.
  Result<std::string> Create(SandboxFields fields, const Peer& peer, Created created);
  // Nobody waits for it any more: removed when it is not running yet.
  void Abandon(const std::string& id);

  // By id or name; kNotFound. Stopped ones are found by id for a minute.
  Result<SandboxEntry*> Find(const std::string& id_or_name);
  // Only one that can be used: kBadState otherwise, saying why.
  Result<SandboxEntry*> FindRunning(const std::string& id_or_name);
  oci::Json ToJson(const SandboxEntry& entry) const;
  // Living and lately stopped ones, oldest first.
  std::vector<const SandboxEntry*> List() const;

  void Touch(SandboxEntry& entry);
  // `removed` is called when all of it is gone (also for one that is ending already).
  void Destroy(SandboxEntry& entry, StopCause cause, Removed removed);
  Result<std::shared_ptr<Exec>> Run(SandboxEntry& entry, ExecFields fields, Exec::Done done,
                                    ExecSink sink = {});
  Result<std::shared_ptr<BackgroundProcess>> StartProcess(SandboxEntry& entry, ProcessFields fields,
                                                          BackgroundProcess::Started started);
  // A program of ours, inside, as a user of the sandbox's. Errors as Run's.
  Result<std::shared_ptr<ToolProcess>> RunTool(SandboxEntry& entry, ToolSpec tool,
                                               ToolProcess::Done done);
  // How far a template's commands are; kept across restarts. An error of the state file is logged,
  // too.
  Status SetLifecycle(SandboxEntry& entry, LifecycleFacts lifecycle);
  // Changes what it may reach, and remembers it. After an error it reaches nothing.
  void SetNetwork(SandboxEntry& entry, network::Policy policy,
                  std::function<void(const Status&)> done);
  // Host ports that lead inside, kept across restarts: sandbox_ports.cc.
  Result<PortFacts> AddPort(SandboxEntry& entry, const PortFacts& wanted);
  Status RemovePort(SandboxEntry& entry, uint16_t port, std::function<void()> removed);
  Result<Forwards*> Ways() const;
  void KillCommands();  // of all sandboxes, when the daemon stops
  size_t commands_running() const;
  size_t ending() const;  // being removed, without those in quarantine

  // Images.
  std::vector<std::string> ImagesInUse() const;
  void BlockImage(const std::string& image_id) { blocked_images_.insert(image_id); }
  void UnblockImage(const std::string& image_id) {
    if (const auto it = blocked_images_.find(image_id); it != blocked_images_.end())
      blocked_images_.erase(it);
  }

  std::vector<const SandboxEntry*> Quarantined() const;
  const Parts& parts() const { return parts_; }

 private:
  Status Admit(const SandboxFields& fields) const;
  // What a process of the sandbox starts from; `user` empty: the sandbox's.
  Result<oci::ProcessSpec> SpecFor(const SandboxEntry& entry, const std::string& user);
  Result<oci::ProcessSpec> SpecFor(const SandboxEntry& entry, const CommandFields& fields);
  Result<ResolvedUser> ResolveUserOf(const rootfs::Image& image, const std::string& user);
  Result<std::vector<LayerDirectory>> AddDirectories(const rootfs::Image& image,
                                                     const SandboxFields& fields,
                                                     runtime::CreateRequest& request);
  Status AddUserLayer(const rootfs::Image& image, SandboxFacts& facts,
                      runtime::CreateRequest& request);
  std::set<std::string> UserLayersInUse() const;
  void Track(SandboxEntry& entry);
  void OnSpawner();
  void OnSpawnerEvent(runtime::RuntimeEvent& event);
  void OnAgent(SandboxEntry& entry);
  void OnAgentEvent(SandboxEntry& entry, const runtime::AgentEvent& event);
  void StartNetwork(SandboxEntry& entry);
  void BecomeReady(SandboxEntry& entry);
  void FailCreation(SandboxEntry& entry, Error error);
  Status TrackFiles(SandboxEntry& entry);
  void StartTimers(SandboxEntry& entry);
  void ArmIdleTimer(SandboxEntry& entry);
  Status RestoreNetworks();
  void TakeUp(runtime::Recovered recovered);
  void SchedulePrepare(const std::string& id);

  // Numbers shown inside: sandbox_numbers.cc.
  void OpenNumbers(SandboxEntry& entry);
  void WriteFirstNumbers(SandboxEntry& entry);
  void RefreshNumbers(SandboxEntry& entry);
  void RefreshBeforeCommand(SandboxEntry& entry);
  void ScheduleNumbers();
  void ScheduleRefill();
  void ExpectNetworksLike(network::Mode mode);
  void LinkBlanks();

  Result<std::vector<ReservedPort>> ReservePorts(const std::vector<PortFacts>& wanted) const;
  Status OpenPorts(SandboxEntry& entry);
  bool PortsInUse(const SandboxEntry& entry);
  Status Save(SandboxEntry& entry);

  // The end of a sandbox: sandbox_removal.cc.
  StopCause CauseOfDeath(const SandboxEntry& entry) const;
  void End(SandboxEntry& entry, StopCause cause);
  void InitEnded(SandboxEntry& entry);
  void TryRemove(SandboxEntry& entry);
  void RetryRemoval(SandboxEntry& entry, Error error);
  void FinishRemoval(SandboxEntry& entry);
  void Bury(std::unique_ptr<SandboxEntry> entry);
  void ScheduleBurialSweep();

  SandboxEntry* Living(const std::string& id);
  void MakeCommands(SandboxEntry& entry);
  std::string ProcessDirectory(const std::string& id) const;  // records and logs
  void SweepProcessDirectories();

  Parts parts_;
  Pace pace_{parts_.loop};                                       // before the sandboxes
  SnapshotBudget snapshot_budget_;                               // outlives the trackers in living_
  std::map<std::string, std::unique_ptr<SandboxEntry>> living_;  // being removed included
  std::map<std::string, std::string> ids_by_name_;
  std::vector<std::unique_ptr<SandboxEntry>>
      tombstones_;  // oldest first; without sandbox or commands
  std::map<std::string, ImageUsers> users_by_image_;
  std::multiset<std::string> blocked_images_;  // once for each job that may remove it
  uint64_t memory_granted_ = 0;
  std::function<bool()> busy_ = [] { return false; };
  int refill_postponed_ = 0;
  bool links_expected_ = false;  // a sandbox of mode open was made
  CpuTurns cpu_turns_;
  UserLayers user_layers_;
  std::vector<std::string> host_processors_;
  Timer refill_timer_, tombstone_timer_, numbers_timer_;
  Watch spawner_watch_;
};

}  // namespace hutch::daemon
