// A runtime for tests of the daemon's own logic: no kernel, everything scripted. Real descriptors,
// so that the loop is real.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "base/fd_socket.h"
#include "runtime/runtime.h"
#include "tests/daemon/fake_sandbox.h"

namespace hutch::daemon {

using runtime::RuntimeEvent;

class FakeRuntime final : public runtime::Runtime {
 public:
  FakeRuntime() {
    Result<SocketPair> pair = MakeSeqpacketPair();
    ours_ = std::move(pair->a);
    spawner_ = std::move(pair->b);
  }

  // --- the script
  void Say(RuntimeEvent event) {
    events_.push_back(std::move(event));
    const std::string_view word = "x";
    IgnoreError(SendMessage(spawner_.get(), {&word, 1}, {}), "nobody reads any more");
  }
  bool ready_at_once = true;
  bool spawns_later = false;
  int busy_removals = 0;  // so many Remove calls answer "still busy"
  int refills = 0;
  bool catches_expected = false;
  std::optional<Error> begin_error, save_error;
  std::vector<FakeSandbox*> begun;  // dangling once removed
  std::vector<runtime::CreateRequest> requests;
  std::map<std::string, std::string> saved;
  std::map<std::string, std::chrono::system_clock::time_point> noted;
  std::vector<std::string> removed_ids;
  std::vector<runtime::Recovered> to_recover;

  // --- runtime::Runtime
  int spawner_fd() const override { return ours_.get(); }
  std::vector<RuntimeEvent> Dispatch() override {
    const Result<Message> message = ReceiveMessage(ours_.get(), 16, MSG_DONTWAIT);
    std::vector<RuntimeEvent> events = std::move(events_);
    events_.clear();
    return events;
  }
  Result<std::unique_ptr<runtime::Sandbox>> Begin(runtime::CreateRequest request) override {
    if (begin_error) return *begin_error;
    requests.push_back(std::move(request));
    auto sandbox = std::make_unique<FakeSandbox>("sb-" + std::to_string(begun.size()));
    sandbox->spawned = !spawns_later;
    if (ready_at_once) sandbox->Say({.kind = AgentEvent::Kind::kReady});
    begun.push_back(sandbox.get());
    return std::unique_ptr<runtime::Sandbox>(std::move(sandbox));
  }
  Status Filled(runtime::Sandbox&) override { return OkStatus(); }
  std::map<std::string, Error> TakeLeftAlone() override { return {}; }
  Status SaveState(const runtime::Sandbox& sandbox, const std::string& text) override {
    if (save_error) return *save_error;
    saved[sandbox.id()] = text;
    return OkStatus();
  }
  Status NoteActivity(const runtime::Sandbox& sandbox,
                      std::chrono::system_clock::time_point when) override {
    noted[sandbox.id()] = when;
    return OkStatus();
  }
  Status Remove(runtime::Sandbox& sandbox) override {
    if (busy_removals > 0) {
      --busy_removals;
      return Error{.code = Code::kBadState, .what = "still busy"};
    }
    removed_ids.push_back(sandbox.id());
    return OkStatus();
  }
  Result<std::vector<runtime::Recovered>> Recover(std::vector<std::string>*) override {
    return std::move(to_recover);
  }
  void Refill() override { ++refills; }
  PoolState pool_state() const override { return {}; }
  std::optional<BlankToLink> TakeToLink() override { return std::nullopt; }
  void Linked(const std::string&, bool) override {}
  void ExpectCatches() override { catches_expected = true; }

 private:
  UniqueFd ours_, spawner_;
  std::vector<RuntimeEvent> events_;
};

}  // namespace hutch::daemon
