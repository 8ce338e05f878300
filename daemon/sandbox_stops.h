// Sandboxes that are stopped: their files on disk, and nothing else of them. How they come there,
// how they come back, and what a later daemon makes of both. Friend and part of Sandboxes
// (daemon/sandboxes.h); on the loop's thread.
//
// One truth at any moment: a record on disk, made by stop number n, holds unless a living sandbox
// says that it was stopped n times, which is one that was started from it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/host_records.h"
#include "daemon/sandbox_entry.h"
#include "daemon/sandbox_parts.h"
#include "daemon/stopped_files.h"
#include "daemon/worker.h"

namespace hutch::daemon {

class Sandboxes;

using StopDone = std::function<void(const Status&)>;
using StartDone = std::function<void(Result<SandboxEntry*>)>;

// Under way, of one entry.
struct StopWork {
  enum class Phase {
    kEnding,    // its processes are asked to end, then killed
    kCopying,   // its files go to disk
    kFreeing,   // they are there; the rest of it goes
    kStarting,  // it is made again, from what is on disk
  };
  Phase phase = Phase::kEnding;
  MoveCause cause = MoveCause::kRequested;
  Peer caller;
  SteadyTime kill_at, give_up_at;
  Timer timer;
  SandboxFacts facts;            // as the record on disk has them; kStarting: those from before
  std::optional<MoveCause> end;  // what was to end it meanwhile
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  std::vector<StopDone> waiters;
  std::vector<StartDone> starters;
};

// Whether it can be used no more because it is being stopped.
bool IsStopping(const SandboxEntry& entry);

class SandboxStops {
 public:
  SandboxStops(Sandboxes& all, const SandboxParts& parts);
  ~SandboxStops();

  // `done` when it is stopped, or why not: then it goes on, but its processes may have been ended.
  // One that is stopped already is no error.
  void Stop(SandboxEntry& entry, MoveCause cause, std::chrono::seconds grace, const Peer& caller,
            StopDone done);
  // Its time is over. Tried again later when it cannot be stopped.
  void Expire(SandboxEntry& entry, MoveCause cause);
  // `done` when it runs; after an error it is stopped as before. One that runs is no error.
  void Start(SandboxEntry& entry, const Peer& caller, StartDone done);
  // Of a stopped one: all of it.
  void Discard(SandboxEntry& entry, StopDone done);

  const LivingSandboxes& stopped() const { return stopped_; }
  SandboxEntry* Find(const std::string& id) const;     // stopped ones
  SandboxEntry* FindAny(const std::string& id) const;  // living or stopped

  // --- for Sandboxes
  // Whether the end of `entry` is ours to decide: then it comes later, or not at all.
  bool HoldsEnd(SandboxEntry& entry, MoveCause cause);
  void Freed(SandboxEntry& entry);  // nothing of it is left but its files
  // After a restart, in this order: what is on disk; for each that lives whether that is not to be
  // taken up; and what lived when the host went down.
  void Recover();
  bool TakesUp(runtime::Recovered& recovered);
  void RecoverHost();
  // Files from which it was started go still: it cannot go before, or they would be its truth.
  bool IsForgetting(const std::string& id) const { return forgetting_.contains(id); }
  bool Keeps(const std::string& id) const;  // what it left elsewhere stays
  const std::set<std::string>& left_alone() const { return left_alone_; }
  HostRecords& host_records() { return host_records_; }

 private:
  using Work = std::shared_ptr<StopWork>;
  void Look(SandboxEntry& entry);
  int StopSignalOf(const SandboxEntry& entry) const;
  Result<bool> EndProcesses(SandboxEntry& entry);
  void Copy(SandboxEntry& entry);
  void Copied(const std::string& id, const Work& work, const Result<StoppedRecord>& record);
  void GiveUp(SandboxEntry& entry, Error error);
  void Free(SandboxEntry& entry);
  void Keep(std::unique_ptr<SandboxEntry> entry);
  void BecomeStopped(SandboxEntry& entry, const Work& work);
  void Discarded(const std::string& id, const Status& status);
  void LeaveAlone(const std::string& id, const Error& error);
  void Remove(std::vector<std::string> paths);
  // --- sandbox_starts.cc
  Result<runtime::CreateRequest> RequestOf(SandboxEntry& entry);
  Status Begin(SandboxEntry& entry, const Work& work);
  Status Fill(const std::string& id, const Work& work, runtime::ScratchToFill scratch);
  void Filled(const std::string& id, const Work& work, const Status& status);
  void Started(SandboxEntry& entry);
  void ForgetFiles(const std::string& id);

  Sandboxes& all_;
  Loop& loop_;
  const StoppedFiles files_;
  HostRecords host_records_;
  const std::string processes_directory_;
  LivingSandboxes stopped_;
  std::set<std::string> left_alone_;
  std::set<std::string> forgetting_;  // started again; their files are about to go
  Worker worker_;                     // last: its jobs end before the rest goes
};

}  // namespace hutch::daemon
