// Pools of sandboxes made ahead of the requests that take them: made the ordinary way, commands of
// the template included, handed out once, made anew in the background. docs/pools.md. On the loop's
// thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/metrics.h"
#include "daemon/pool_match.h"
#include "daemon/routes.h"
#include "daemon/template_start.h"

namespace hutch::daemon {

class PoolSink;

class SandboxPools {
 public:
  using Done = std::function<void(const Status&)>;

  explicit SandboxPools(Api& api);  // borrowed
  ~SandboxPools();

  // Reads the pools of the API. Blocks; before the loop runs. A file that cannot be read is moved
  // aside as *.broken, and said to be.
  void Recover();
  // Takes up the sandboxes of an earlier daemon that wait in a pool that is still there, and
  // destroys the others. From now on pools are filled.
  void Start();
  // Nothing more is made; what is being made is undone. What waits stays for the next daemon.
  void Stop();
  // The configuration has changed.
  void Reload();
  // Whether requests are under way: sandboxes are made when none are.
  void SetBusyCheck(std::function<bool()> busy) { busy_ = std::move(busy); }

  // A sandbox that is what a request asks for, given to it: remembered as the caller's before this
  // returns, running, never to be given again. nullptr: none is there, or the ordinary way will say
  // what is wrong with the request.
  SandboxEntry* Take(const SandboxFields& fields, const std::vector<TemplateStage>& stages,
                     const Peer& peer);
  // Calls `then` when there is room for a sandbox, or when pools have nothing more to give up for
  // it; now, if that is so now. A request that would not fit all the same takes nothing from them.
  void MakeRoom(const SandboxFields& fields, const Peer& peer, std::function<void()> then);

  // `done` once it is on disk. kBadState for one of the configuration's, kLimit past kMaxPools.
  void Put(PoolSpec spec, Done done);
  // `done` when all that waited in it is gone. kNotFound, kBadState.
  void Remove(const std::string& name, Done done);
  Result<oci::Json> ToJson(const std::string& name) const;
  oci::Json ListJson() const;
  std::vector<const SandboxEntry*> Pooled() const;  // all that wait, or are being made
  void AddMetrics(MetricsText* text) const;

 private:
  friend class PoolSink;
  enum class Check { kDue, kUnderWay, kPassed };
  struct Member {
    Check check = Check::kDue;
    SteadyTime begun = {};
    SteadyTime check_until = {};
  };
  struct Pool {
    PoolSpec spec;
    bool configured = false;  // by the operator's file
    std::optional<CreatePlan> plan = {};
    std::string key = {};  // of the plan
    bool planning = false;
    SteadyTime plan_due = {};
    std::map<std::string, Member> members = {};          // by id
    std::vector<std::shared_ptr<PoolSink>> making = {};  // begun, not answered
    uint64_t hits = 0, misses = 0, made = 0, failed = 0;
    DecayingRate takes = {};
    double make_seconds = 0;  // of late
    uint64_t failures = 0;    // in a row
    SteadyTime not_before = {};
    std::optional<Error> error = {};  // the last
    WallTime error_at = {};
    std::string waits_for = {};  // why what is missing is not being made
  };
  using Pools = std::map<std::string, std::shared_ptr<Pool>>;
  struct Drain {
    std::string name;
    Done done;
  };

  bool enabled() const { return api_.config.pools == "on"; }
  Status Read(const std::string& text);
  std::string Text(const std::map<std::string, PoolSpec>& specs) const;
  void Apply();
  void Change(std::function<Result<std::map<std::string, PoolSpec>>()> change, Done done);
  void NextChange();
  SandboxEntry* Living(const std::string& id) const;
  oci::Json PoolJson(const Pool& pool) const;
  size_t ReadyCount(const Pool& pool) const;
  uint64_t Wanted(const Pool& pool) const;
  void Schedule(Milliseconds pause);
  void Tick();
  void Tend(const std::shared_ptr<Pool>& pool);
  void Reap(Pool& pool);
  void Retire(Pool& pool);
  void BeginPlan(const std::shared_ptr<Pool>& pool);
  void Planned(Pool& pool, Result<CreatePlan> plan);
  void CheckMember(const std::shared_ptr<Pool>& pool, const std::string& id);
  void Checked(Pool& pool, const std::string& id, const Status& passed);
  std::string WhyNotNow(const Pool& pool) const;
  void Make(const std::shared_ptr<Pool>& pool);
  void Made(const std::shared_ptr<Pool>& pool, const PoolSink& sink, const Reply& reply);
  void Failed(Pool& pool, const Error& error);
  void Note(Pool& pool, const Error& error);  // as the last
  void GiveUp(SandboxEntry& entry, std::function<void()> gone = {});
  SandboxEntry* Spare() const;
  void Yield(SandboxEntry& entry, std::function<void()> gone = {});
  bool WouldFit(const SandboxFields& fields, const Peer& peer) const;
  void Empty(Pool& pool);
  void LookAtDrains();
  Status HandOut(SandboxEntry& entry, const SandboxFields& fields, const rootfs::Image& image,
                 const Peer& peer);
  Result<oci::ProcessSpec> ProcessFor(const SandboxEntry& entry, const SandboxFields& fields,
                                      const rootfs::Image& image);
  void CountMiss(const SandboxFields& fields, const std::string& image_id, const std::string& key);

  Api& api_;
  Sandboxes& sandboxes_;
  std::function<bool()> busy_ = [] { return false; };
  const std::string path_;
  std::map<std::string, PoolSpec> kept_;  // of the API, as on disk
  Pools pools_;
  std::deque<std::function<void()>> changes_;  // the first is under way
  std::vector<Drain> drains_;
  bool started_ = false;
  int postponed_ = 0;
  SteadyTime make_at_ = {};      // the next
  SteadyTime yield_until_ = {};  // what fails before was given up
  Timer timer_;
  SteadyTime tick_at_ = {};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hutch::daemon
