// Runtime as hutchd uses it. See runtime/runtime.h for the contract.
#pragma once

#include <deque>
#include <map>

#include "runtime/runtime.h"
#include "runtime/sandbox_impl.h"

namespace hutch::runtime {

class RuntimeImpl : public Runtime {
 public:
  RuntimeImpl(RuntimeConfig config, UniqueFd init_memfd, Workshop workshop);
  ~RuntimeImpl() override;

  int spawner_fd() const override { return workshop_.spawner.fd(); }
  std::vector<RuntimeEvent> Dispatch() override;
  Result<std::unique_ptr<Sandbox>> Begin(CreateRequest request) override;
  Status Filled(Sandbox& sandbox) override;
  Status SaveState(const Sandbox& sandbox, const std::string& saved) override;
  Status NoteActivity(const Sandbox& sandbox, std::chrono::system_clock::time_point when) override;
  Status Remove(Sandbox& sandbox) override;
  Result<std::vector<Recovered>> Recover(std::vector<std::string>* removed) override;
  std::map<std::string, Error> TakeLeftAlone() override { return std::exchange(left_alone_, {}); }
  void Refill() override;
  PoolState pool_state() const override;
  std::optional<BlankToLink> TakeToLink() override;
  void Linked(const std::string& id, bool well) override;
  void ExpectCatches() override { workshop_.netns_pool->Prefer(network::NetnsKind::kCatch); }

  // Makes one shell and waits for its blank to say so: proves CLONE_INTO_CGROUP and every step that
  // needs no image.
  Status SelfTest();
  Workshop& workshop() { return workshop_; }

 private:
  struct InFlight {                // asked of the spawn server
    std::unique_ptr<Shell> shell;  // a blank for the pool; null: `sandbox` has its own
    SandboxImpl* sandbox = nullptr;
  };

  Result<std::unique_ptr<Shell>> StartShell(const std::string& id = "");
  std::unique_ptr<Shell> TakeBlank(bool wants_link);
  std::unique_ptr<Shell> ExtractBlank(pid_t pid);
  void Discard(std::unique_ptr<Shell> shell);
  void HandleSpawned(SpawnOutcome outcome, std::vector<RuntimeEvent>& events);
  void HandleFailed(const SpawnOutcome& outcome, std::vector<RuntimeEvent>& events);
  void HandleExited(const SpawnOutcome& outcome, std::vector<RuntimeEvent>& events);
  void HandleServerEnded(const SpawnOutcome& outcome, std::vector<RuntimeEvent>& events);
  Status Continue(SandboxImpl& sandbox);
  Result<Recovered> TakeUp(const std::string& id);
  Status CheckVersion(const std::string& id, const oci::Json& state);
  void RemoveRemains(const std::string& id, std::vector<std::string>* removed);
  static void OnSandboxDestroyed(void* owner, SandboxImpl* sandbox);

  RuntimeConfig config_;
  UniqueFd init_memfd_;
  Workshop workshop_;
  std::map<uint64_t, InFlight> in_flight_;
  std::deque<std::unique_ptr<Shell>> blanks_;
  std::deque<std::unique_ptr<Shell>> linked_;
  std::map<std::string, std::unique_ptr<Shell>> linking_;
  std::map<pid_t, SandboxImpl*> living_;        // by the agent's pid
  std::vector<std::unique_ptr<Shell>> doomed_;  // being taken down; retried at each Refill
  std::map<std::string, Error> left_alone_;
  bool refill_failed_ = false;
};

}  // namespace hutch::runtime
