// Handing out what was made ahead, and giving it up for those who need its room.
#include <algorithm>

#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/sandbox_pools.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kRefillPause{5};  // behind the answer
constexpr std::string_view kUser = "USER=";

std::string UserOf(const std::vector<std::string>& env) {
  const auto user = std::find_if(env.begin(), env.end(),
                                 [](const std::string& entry) { return entry.starts_with(kUser); });
  return user == env.end() ? std::string() : user->substr(kUser.size());
}

Error NotTaken(const char* what) { return Error{.code = Code::kBadState, .what = what}; }

}  // namespace

// What its commands start from: as if it were made for the request. The name of a user that the
// image does not know came with the layer it was made with.
Result<oci::ProcessSpec> SandboxPools::ProcessFor(const SandboxEntry& entry,
                                                  const SandboxFields& fields,
                                                  const rootfs::Image& image) {
  if (entry.facts.fields.env.contains("USER") && !fields.env.contains("USER"))
    return NotTaken("its user's name is not known");
  ASSIGN_OR_RETURN(const oci::Spec spec,
                   BuildSpec(fields, image.config, [&](const std::string& user) {
                     return sandboxes_.ResolveUserOf(image, user);
                   }));
  oci::ProcessSpec process = entry.facts.process;
  const std::string user = UserOf(process.env);
  process.env = spec.process.env;
  process.cwd = spec.process.cwd;
  process.args = spec.process.args;
  if (!user.empty() && !fields.env.contains("USER")) SetEnv(process.env, "USER", user);
  return process;
}

// The record says whose it is before anybody is told; until then it waits in the pool, whenever
// this daemon is killed.
Status SandboxPools::HandOut(SandboxEntry& entry, const SandboxFields& fields,
                             const rootfs::Image& image, const Peer& peer) {
  const SteadyTime begun = Loop::Now();
  const WallTime now = std::chrono::system_clock::now();
  ASSIGN_OR_RETURN(std::vector<ReservedPort> ports, sandboxes_.ReservePorts(fields.ports));
  SandboxFacts taken = entry.facts;
  ASSIGN_OR_RETURN(taken.process, ProcessFor(entry, fields, image));
  taken.fields = fields;
  ASSIGN_OR_RETURN(taken.fields.remote_env, ResolveRemoteEnv(fields.remote_env, taken.process.env));
  taken.fields.pool = entry.facts.fields.pool;
  taken.fields.pool_key = entry.facts.fields.pool_key;
  taken.fields.pooled = false;
  taken.caller_uid = peer.uid;
  taken.created_at = now;
  taken.from_pool = true;
  taken.history.clear();
  AddToHistory({SandboxState::kCreating, MoveCause::kRequested, now}, &taken.history);
  AddToHistory({SandboxState::kRunning, MoveCause::kReady, now}, &taken.history);
  for (const ReservedPort& port : ports) taken.ports.push_back(port.facts);
  const double ms = std::chrono::duration<double, std::milli>(Loop::Now() - begun).count();
  taken.timings_ms = {{"total", ms}, {"pool", ms}};
  const std::string record = SaveFacts(taken);
  RETURN_IF_ERROR(CheckRecord(record));
  const Status kept = sandboxes_.parts_.runtime.SaveState(*entry.sandbox, record);
  if (!kept.has_value()) {
    GiveUp(entry);  // what its record says now is not known
    return kept;
  }

  const double saved = std::chrono::duration<double, std::milli>(Loop::Now() - begun).count();
  taken.timings_ms = {{"total", saved}, {"pool", saved}};
  sandboxes_.CountOut(entry);
  entry.facts = std::move(taken);
  sandboxes_.CountIn(entry);
  for (ReservedPort& port : ports) sandboxes_.parts_.forwards->Add(entry.facts.id, std::move(port));
  sandboxes_.BeginIdle(entry, now);
  sandboxes_.StartTimers(entry);
  api_.watching.SandboxBegun(entry);
  api_.watching.SandboxRuns(entry);
  return OkStatus();
}

SandboxEntry* SandboxPools::Take(const SandboxFields& fields,
                                 const std::vector<TemplateStage>& stages, const Peer& peer) {
  if (pools_.empty() || !enabled() || !CheckPoolable(fields).has_value()) return nullptr;
  const Result<rootfs::Image> image = sandboxes_.parts_.store.Resolve(fields.image);
  if (!image.has_value() || sandboxes_.blocked_images_.contains(image->id)) return nullptr;
  // What is wrong with the request is said where it always is.
  if (sandboxes_.ids_by_name_.contains(fields.name) ||
      (!fields.session_key.empty() &&
       sandboxes_.FindSession({peer.uid, fields.session_key}) != nullptr) ||
      !sandboxes_.owners_.Check(peer.uid, fields).has_value())
    return nullptr;
  const std::string key = PoolKey(fields, stages);
  for (const auto& [name, pool] : pools_) {
    const std::map<std::string, Member> members = pool->members;
    for (const auto& [id, member] : members) {
      SandboxEntry* const entry = Living(id);
      if (entry == nullptr || member.check != Check::kPassed ||
          entry->facts.fields.pool_key != key || entry->facts.image_id != image->id ||
          entry->moments.state != SandboxState::kRunning)
        continue;
      const Status handed = HandOut(*entry, fields, *image, peer);
      if (!handed.has_value()) {
        Log(LogLevel::kInfo, "a sandbox made ahead was not handed out",
            {{"pool", name}, {"sandbox", id}, {"error", handed.error().ToString()}});
        break;  // the ordinary way says it again, or does better
      }
      pool->members.erase(id);
      ++pool->hits;
      pool->takes.Add(Loop::Now());
      Schedule(kRefillPause);
      return entry;
    }
  }
  CountMiss(fields, image->id, key);
  return nullptr;
}

// The pools that could have had it: those that make just this, or else those of the same template
// or image, whose requests say something else.
void SandboxPools::CountMiss(const SandboxFields& fields, const std::string& image_id,
                             const std::string& key) {
  bool made = false;
  for (const auto& [name, pool] : pools_) {
    if (!pool->plan || pool->key != key) continue;
    const auto image = sandboxes_.parts_.store.Resolve(pool->plan->fields.image);
    if (!image.has_value() || image->id != image_id) continue;
    made = true;
    ++pool->misses;
    pool->takes.Add(Loop::Now());
  }
  for (const auto& [name, pool] : pools_) {
    if (made || !pool->plan) continue;
    const SandboxFields& own = pool->plan->fields;
    if (own.template_name != fields.template_name) continue;
    const auto image = sandboxes_.parts_.store.Resolve(own.image);
    if (fields.template_name.empty() && (!image.has_value() || image->id != image_id)) continue;
    ++pool->misses;
    pool->plan_due = {};  // the template may be another now
  }
  Schedule(kRefillPause);
}

// The last of those that wait, or are being made; nullptr: there is none.
SandboxEntry* SandboxPools::Spare() const {
  SandboxEntry* spare = nullptr;
  for (const auto& [id, entry] : sandboxes_.living_)
    if (entry->facts.fields.pooled && !entry->ending) spare = entry.get();
  return spare;
}

void SandboxPools::Yield(SandboxEntry& entry, std::function<void()> gone) {
  yield_until_ = Loop::Now() + kPoolYieldPause;
  for (const auto& [name, pool] : pools_) pool->members.erase(entry.facts.id);
  Log(LogLevel::kInfo, "a sandbox made ahead gives up its room", {{"sandbox", entry.facts.id}});
  GiveUp(entry, std::move(gone));
}

// Whether a request that finds no room now would, without all that waits.
bool SandboxPools::WouldFit(const SandboxFields& fields, const Peer& peer) const {
  Promise waiting;
  size_t count = 0;
  for (const auto& [id, entry] : sandboxes_.living_) {
    if (!entry->facts.fields.pooled) continue;
    waiting += PromiseOf(entry->facts.fields);
    ++count;
  }
  return sandboxes_.admission_.HasRoom(fields, waiting) &&
         sandboxes_.living_.size() - count < api_.config.max_sandboxes &&
         sandboxes_.owners_.Check(peer.uid, fields).has_value() &&
         !sandboxes_.ids_by_name_.contains(fields.name) &&
         sandboxes_.parts_.store.Resolve(fields.image).has_value();
}

void SandboxPools::MakeRoom(const SandboxFields& fields, const Peer& peer,
                            std::function<void()> then) {
  const bool room = sandboxes_.admission_.HasRoom(fields) &&
                    sandboxes_.living_.size() < api_.config.max_sandboxes;
  SandboxEntry* const spare = room ? nullptr : Spare();
  if (spare == nullptr || !WouldFit(fields, peer)) return then();
  Yield(*spare, [this, alive = std::weak_ptr(alive_), fields, peer, then = std::move(then)] {
    if (!alive.expired()) MakeRoom(fields, peer, then);
  });
}

}  // namespace hutch::daemon
