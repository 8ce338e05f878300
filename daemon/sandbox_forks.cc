// Forks: one sealing, then as many creations, all or none.
#include <algorithm>
#include <optional>

#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_snapshots.h"

namespace hutch::daemon {

class SandboxSnapshots::Fork {
 public:
  SandboxFields fields;  // of each, but its name
  ForkFields wanted;
  Peer peer;
  ForkedDone done;
  LifecycleFacts lifecycle;  // the source's; its commands do not run again
  Progress progress;
  Sealed sealed;
  std::vector<std::string> ids;  // by index; empty: not made
  size_t begun = 0, under_way = 0, made = 0;
  size_t reserved = 0;
  std::optional<Error> error;
  bool abandoned = false, sealing = true;
};

namespace {

constexpr char kForkedFrom[] = "forked_from";

SandboxFields FieldsOfFork(const SandboxEntry& source) {
  SandboxFields fields = source.facts.fields;
  fields.pull = "never";
  fields.name.clear();
  fields.session_key.clear();
  fields.idempotency_key.clear();
  fields.digests.clear();
  fields.pool.clear();  // its own or none
  fields.pool_key.clear();
  fields.labels[kForkedFrom] = source.facts.id;
  fields.ports = source.facts.ports;
  for (PortFacts& port : fields.ports) port.host_port = 0;  // a number of the host's is had once
  // A later daemon removes those of which nobody was told.
  fields.has_lifecycle = true;
  return fields;
}

std::string NameOf(const SandboxSnapshots::ForkFields& wanted, size_t index) {
  return wanted.name.empty() ? "" : wanted.name + "-" + std::to_string(index + 1);
}

}  // namespace

// As if they were there: what comes between cannot take their place.
Status SandboxSnapshots::Reserve(const SandboxFields& fields, const ForkFields& wanted,
                                 const Peer& peer) {
  for (size_t i = 0; i < wanted.count && !wanted.name.empty(); ++i)
    if (sandboxes_.ids_by_name_.contains(NameOf(wanted, i)))
      return Error{.code = Code::kExists,
                   .what = "the name \"" + NameOf(wanted, i) + "\" is taken",
                   .field = "name"};
  const size_t most = sandboxes_.parts_.config.max_sandboxes;
  if (sandboxes_.living_.size() + wanted.count > most)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(sandboxes_.living_.size()) + " sandboxes live, and " +
                         std::to_string(most) + " may (limits.sandboxes): no room for " +
                         std::to_string(wanted.count) + " more",
                 .field = "count"};
  for (size_t i = 0; i < wanted.count; ++i) {
    const Status fits = sandboxes_.AdmitCounts(fields, peer.uid);
    if (!fits.has_value()) {
      for (; i > 0; --i) Release(fields, peer.uid);
      return fits;
    }
    sandboxes_.admission_.Add(fields);
    sandboxes_.owners_.Add(peer.uid, fields);
  }
  return OkStatus();
}

void SandboxSnapshots::Release(const SandboxFields& fields, uint32_t uid) {
  sandboxes_.admission_.Remove(fields);
  sandboxes_.owners_.Remove(uid, fields);
}

void SandboxSnapshots::CountReserved() {
  for (const std::shared_ptr<Fork>& fork : forks_)
    for (size_t i = 0; i < fork->reserved; ++i)
      sandboxes_.owners_.Add(fork->peer.uid, fork->fields);
}

std::shared_ptr<SandboxSnapshots::Fork> SandboxSnapshots::Begin(SandboxEntry& entry,
                                                                const ForkFields& wanted,
                                                                const Peer& peer, Progress progress,
                                                                ForkedDone done) {
  const auto fork = std::make_shared<Fork>();
  fork->fields = FieldsOfFork(entry);
  fork->wanted = wanted;
  fork->peer = peer;
  fork->done = std::move(done);
  fork->lifecycle = entry.facts.lifecycle;
  fork->lifecycle.awaited = false;
  if (fork->lifecycle.state == LifecycleFacts::State::kRunning)
    fork->lifecycle.state = LifecycleFacts::State::kInterrupted;
  fork->progress = progress;
  fork->ids.resize(wanted.count);
  const Status reserved = Reserve(fork->fields, wanted, peer);
  if (!reserved.has_value()) {
    loop_.Post([fork, error = reserved.error()] { fork->done(error); });
    return fork;
  }
  fork->reserved = wanted.count;
  forks_.insert(fork);
  Seal(entry, "", std::move(progress), [this, fork](Result<Sealed> sealed) {
    fork->sealing = false;
    if (!sealed.has_value()) {
      fork->error = sealed.error();
      return GiveUp(fork);
    }
    fork->sealed = std::move(*sealed);
    fork->fields.image = fork->sealed.image.id;
    in_making_.insert(fork->sealed.image.id);
    if (fork->abandoned) return GiveUp(fork);
    MakeMore(fork);
  });
  return fork;
}

void SandboxSnapshots::MakeMore(const std::shared_ptr<Fork>& fork) {
  while (!fork->error && !fork->abandoned && fork->under_way < kForksAtOnce &&
         fork->begun < fork->wanted.count) {
    const size_t index = fork->begun++;
    SandboxFields fields = fork->fields;
    fields.name = NameOf(fork->wanted, index);
    // Its own place is counted by the creation itself.
    Release(fork->fields, fork->peer.uid);
    --fork->reserved;
    ++fork->under_way;
    const auto made = [this, alive = alive_, fork, index](Result<SandboxEntry*> entry) {
      if (*alive) Made(fork, index, std::move(entry));
    };
    const Result<std::string> id = sandboxes_.Create(std::move(fields), fork->peer, made);
    if (!id.has_value()) return Made(fork, index, id.error());
  }
}

void SandboxSnapshots::Made(const std::shared_ptr<Fork>& fork, size_t index,
                            Result<SandboxEntry*> made) {
  --fork->under_way;
  if (made.has_value()) {
    fork->ids[index] = (*made)->facts.id;
    ++fork->made;
    if (fork->progress)
      fork->progress({"fork", fork->fields.image, fork->made, fork->wanted.count});
  } else if (!fork->error) {
    fork->error = made.error();
    fork->error->what = "fork " + std::to_string(index + 1) + " of " +
                        std::to_string(fork->wanted.count) + ": " + fork->error->what;
  }
  if (fork->error || fork->abandoned) {
    if (fork->under_way == 0) GiveUp(fork);
    return;
  }
  if (fork->made == fork->wanted.count) return Finish(fork);
  MakeMore(fork);
}

// From here on each is as any other: remembered before anybody is told.
void SandboxSnapshots::Finish(const std::shared_ptr<Fork>& fork) {
  for (const std::string& id : fork->ids) {
    SandboxEntry* const entry = sandboxes_.Living(id);
    Status kept = entry == nullptr || entry->ending
                      ? Status(Error{.code = Code::kUnavailable,
                                     .what = "sandbox " + id + " of the fork ended at once"})
                      : sandboxes_.SetLifecycle(*entry, fork->lifecycle);
    if (kept.has_value()) {
      entry->facts.fields.has_lifecycle = false;
      continue;
    }
    fork->error = std::move(kept).error();
    return GiveUp(fork);
  }
  in_making_.extract(fork->sealed.image.id);
  forks_.erase(fork);
  const ForkedDone done = std::exchange(fork->done, nullptr);
  if (done) done(Forked{.sealed = fork->sealed, .ids = fork->ids});
}

void SandboxSnapshots::Abandon(const std::shared_ptr<Fork>& fork) {
  if (fork->done == nullptr) return;
  fork->done = nullptr;
  fork->abandoned = true;
  if (!fork->sealing && fork->under_way == 0) GiveUp(fork);
}

// Nothing of it is being made now. The answer comes when all of it is gone.
void SandboxSnapshots::GiveUp(const std::shared_ptr<Fork>& fork) {
  for (; fork->reserved > 0; --fork->reserved) Release(fork->fields, fork->peer.uid);
  forks_.erase(fork);
  in_making_.extract(fork->sealed.image.id);
  const auto left = std::make_shared<size_t>(1);
  const auto answer = [fork, left](const Status&) {
    if (--*left > 0) return;
    const ForkedDone done = std::exchange(fork->done, nullptr);
    if (done) done(*fork->error);
  };
  for (const std::string& id : std::exchange(fork->ids, {})) {
    SandboxEntry* const entry = id.empty() ? nullptr : sandboxes_.Living(id);
    if (entry == nullptr) continue;
    ++*left;
    sandboxes_.Destroy(*entry, MoveCause::kAbandoned, answer);
  }
  answer(OkStatus());
}

}  // namespace hutch::daemon
