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
#include "daemon/admission.h"
#include "daemon/commands.h"
#include "daemon/cpu_turns.h"
#include "daemon/create_claims.h"
#include "daemon/forwards.h"
#include "daemon/image_users.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/owners.h"
#include "daemon/sandbox_blanks.h"
#include "daemon/sandbox_entry.h"
#include "daemon/sandbox_networks.h"
#include "daemon/sandbox_numbers.h"
#include "daemon/sandbox_parts.h"
#include "daemon/user_layers.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

class Sandboxes {
  friend class SandboxSnapshots;

 public:
  using Parts = SandboxParts;
  using Created = std::function<void(Result<SandboxEntry*>)>;
  using Removed = std::function<void(const Status&)>;
  using PauseDone = std::function<void(const Status&)>;

  explicit Sandboxes(const Parts& parts);
  ~Sandboxes();

  // Takes up what the last daemon left running; removes the rest. Then Start().
  Status Recover();
  void Start();
  // Whether requests are under way: pools are topped up when none are.
  void SetBusyCheck(std::function<bool()> busy) { ahead_.SetBusyCheck(std::move(busy)); }

  // Returns the id of what is being made. `created` is called later.
  Result<std::string> Create(SandboxFields fields, const Peer& peer, Created created);
  // Nobody waits for it any more: removed when it is not running yet.
  void Abandon(const std::string& id);
  // By id or name; kNotFound. Ended ones are found by id for retention_seconds.
  Result<SandboxEntry*> Find(const std::string& id_or_name);
  // What a user's session key stands for; nullptr: the key is free.
  SandboxEntry* FindSession(const OwnedKey& key);
  // Only one that can be used: kBadState otherwise, saying why.
  Result<SandboxEntry*> FindRunning(const std::string& id_or_name);
  Result<SandboxEntry*> FindLiving(const std::string& id_or_name);  // running or paused
  oci::Json ToJson(const SandboxEntry& entry) const;
  std::vector<const SandboxEntry*> ListAll() const;  // those that wait in pools as well
  std::vector<const SandboxEntry*> List() const;     // living and lately ended, without pooled ones

  // How long it lives: sandbox_life.cc. An activity that counts begins the idle time anew.
  void Touch(SandboxEntry& entry, Activity what);
  Status SetTimeouts(SandboxEntry& entry, const Timeouts& timeouts);
  // `moved` after each move, until it is forgotten; it may forget itself.
  uint64_t OnMove(SandboxEntry& entry, std::function<void()> moved);
  void ForgetMove(const std::string& id, uint64_t watcher);
  // `done` when all of it is frozen and that is remembered, or why not: sandbox_pause.cc.
  void Pause(SandboxEntry& entry, MoveCause cause, PauseDone done);
  // At once. A pause under way is given up.
  Status Resume(SandboxEntry& entry, MoveCause cause);
  // Gives memory back; the bytes. `done` may come later.
  void Reclaim(SandboxEntry& entry, std::function<void(Result<uint64_t>)> done);
  // `removed` is called when all of it is gone (also for one that is ending already).
  void Destroy(SandboxEntry& entry, MoveCause cause, Removed removed);
  Result<std::shared_ptr<Exec>> Run(SandboxEntry& entry, ExecFields fields, Exec::Done done,
                                    ExecSink sink = {});
  Result<std::shared_ptr<BackgroundProcess>> StartProcess(SandboxEntry& entry, ProcessFields fields,
                                                          BackgroundProcess::Started started);
  // A program of ours, inside, as a user of the sandbox's. Errors as Run's.
  Result<std::shared_ptr<ToolProcess>> RunTool(SandboxEntry& entry, ToolSpec tool,
                                               ToolProcess::Done done);
  // How far a template's commands are; kept across restarts. Errors are logged, too.
  Status SetLifecycle(SandboxEntry& entry, LifecycleFacts lifecycle);
  // Changes what it may reach, and keeps it. After an error it reaches nothing.
  void SetNetwork(SandboxEntry& entry, network::Policy policy,
                  std::function<void(const Status&)> done);
  // Other labels, kept across restarts. kLimit when an owner that they name has enough.
  Status SetLabels(SandboxEntry& entry, StringMap labels);
  // Host ports that lead inside, kept across restarts: sandbox_ports.cc.
  Result<PortFacts> AddPort(SandboxEntry& entry, const PortFacts& wanted);
  Status RemovePort(SandboxEntry& entry, uint16_t port, std::function<void()> removed);
  Result<Forwards*> Ways() const;
  void KillCommands();  // of all sandboxes, when the daemon stops
  size_t commands_running() const;
  size_t ending() const;  // being removed, without those in quarantine

  std::vector<std::string> ImagesInUse() const;
  void BlockImage(const std::string& image_id) { blocked_images_.insert(image_id); }
  void UnblockImage(const std::string& image_id) { blocked_images_.extract(image_id); }  // once
  std::vector<const SandboxEntry*> Quarantined() const;
  CreateClaims& claims() { return claims_; }
  const Admission& admission() const { return admission_; }
  oci::Json AdmissionJson() const;  // for GET /v1/info, with "owners"
  void RecountOwners();             // after a change of config.owner_limits
  const Parts& parts() const { return parts_; }
  const std::unique_ptr<class SandboxStops> stops;  // stopping, and starting again

 private:
  friend class SandboxPools;  // hands out what was made ahead
  friend class SandboxStops;
  Status Admit(const SandboxFields& fields, uint32_t uid);
  Status AdmitCounts(const SandboxFields& fields, uint32_t uid);
  void CountIn(const SandboxEntry& entry);  // from its beginning to its complete removal
  void CountOut(const SandboxEntry& entry);
  void FreeSession(const SandboxEntry& entry);  // as soon as it ends
  void RememberAnswer(const SandboxEntry& entry);
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
  void Move(SandboxEntry& entry, SandboxState to, MoveCause cause,
            WallTime at = std::chrono::system_clock::now());
  void BeginIdle(SandboxEntry& entry, WallTime from);
  void NoteActivity(const SandboxEntry& entry);
  void TouchIfBusy(SandboxEntry& entry);
  void SetLifetime(SandboxEntry& entry);
  void StartTimers(SandboxEntry& entry);
  void CheckDeadlines(SandboxEntry& entry);
  void Expire(SandboxEntry& entry, MoveCause cause);
  Status BecomePaused(SandboxEntry& entry, MoveCause cause);
  void TellPauseWaiters(SandboxEntry& entry, const Status& paused);
  void TakeUpPause(SandboxEntry& entry);
  void TakeUpActivity(SandboxEntry& entry, WallTime last_activity);
  Status RestoreNetworks();
  void TakeUp(runtime::Recovered recovered);
  void SchedulePrepare(const std::string& id);
  Result<std::vector<ReservedPort>> ReservePorts(const std::vector<PortFacts>& wanted) const;
  Status OpenPorts(SandboxEntry& entry);
  bool PortsInUse(const SandboxEntry& entry);
  Status Save(SandboxEntry& entry);
  Status SaveRecord(const SandboxEntry& entry, const SandboxFacts& facts);
  // The end of a sandbox: sandbox_removal.cc.
  MoveCause CauseOfDeath(const SandboxEntry& entry) const;
  void End(SandboxEntry& entry, MoveCause cause);
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
  CreateClaims claims_;
  Pace pace_{parts_.loop};          // before the sandboxes
  SnapshotBudget snapshot_budget_;  // outlives the trackers in living_
  LivingSandboxes living_;          // being removed included
  std::map<std::string, std::string> ids_by_name_;
  std::vector<std::unique_ptr<SandboxEntry>> tombstones_;  // oldest first; of ended ones
  std::map<std::string, ImageUsers> users_by_image_;
  std::multiset<std::string> blocked_images_;       // once for each job that may remove it
  std::map<OwnedKey, std::string> ids_by_session_;  // of those that have not ended
  mutable Admission admission_;                     // reads the host's strain when asked
  OwnerCounts owners_{parts_.config.owner_limits};
  uint64_t last_move_watcher_ = 0;
  CpuTurns cpu_turns_;
  UserLayers user_layers_;
  SandboxBlanks ahead_{parts_};
  SandboxNumbers numbers_{parts_.loop, living_, cpu_turns_};
  Timer tombstone_timer_;
  Watch spawner_watch_;
};

}  // namespace hutch::daemon
