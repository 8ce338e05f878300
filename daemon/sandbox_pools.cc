#include "daemon/sandbox_pools.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "daemon/files.h"
#include "daemon/limits.h"

namespace hutch::daemon {

using oci::Json;

namespace {

constexpr Milliseconds kPoolTick{1'000};    // when nothing is to be done
constexpr Milliseconds kPoolQuickTick{25};  // while something is
constexpr int kPoolPostponements = 20;      // then even with requests under way
constexpr double kNewestShare = 0.3;        // of the time to make one

// Of hutchd itself, who asks for what is made ahead.
Peer OwnPeer() { return {.pid = ::getpid(), .uid = ::getuid(), .gid = ::getgid()}; }

Error BadState(std::string what) {
  return Error{.code = Code::kBadState, .what = std::move(what), .field = "name"};
}

}  // namespace

// The client's side of a request that nobody made.
class PoolSink final : public ReplySink {
 public:
  PoolSink(SandboxPools& pools, std::weak_ptr<SandboxPools::Pool> pool)
      : begun(Loop::Now()), pools_(&pools), pool_(std::move(pool)) {}

  void SendReply(Reply reply) override {
    if (pools_ == nullptr) return;
    SandboxPools* const pools = std::exchange(pools_, nullptr);
    if (const auto pool = pool_.lock()) pools->Made(pool, *this, reply);
  }
  // Nobody wants it any more: whoever makes it undoes it.
  void Cancel() {
    pools_ = nullptr;
    if (const auto hangup = std::exchange(hangup_, {})) hangup();
  }
  // What it makes is left to the next daemon, which undoes it.
  void Forget() { pools_ = nullptr; }
  void SetHangupHandler(std::function<void()> handler) override { hangup_ = std::move(handler); }
  void ReceiveBody(UniqueFd, StreamDone) override {}
  void SendStream(StreamHead, UniqueFd, StreamDone) override {}
  void StartEvents() override {}
  void SendEvent(std::string_view, std::string, std::string_view) override {}
  void EndEvents() override {}
  bool Congested() const override { return false; }
  void OnDrained(std::function<void()>) override {}
  Status StartWebSocket(WebSocketHandler) override {
    return Error{.code = Code::kUnsupported, .what = "no WebSocket here"};
  }
  void SendMessage(bool, std::string) override {}
  void PauseMessages(bool) override {}
  void CloseWebSocket(uint16_t, std::string) override {}

  const SteadyTime begun;

 private:
  SandboxPools* pools_;  // nullptr: answered, or not wanted any more
  std::weak_ptr<SandboxPools::Pool> pool_;
  std::function<void()> hangup_;
};

SandboxPools::SandboxPools(Api& api)
    : api_(api), sandboxes_(api.sandboxes), path_(api.config.state_dir + "/pools.json") {}

SandboxPools::~SandboxPools() {
  for (const auto& [name, pool] : pools_)
    for (const auto& sink : pool->making) sink->Forget();
}

// --- which pools there are

Status SandboxPools::Read(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, oci::ParseJson(text, {.max_bytes = kMaxPoolsFileBytes}));
  uint64_t version = 0;
  oci::ObjectReader reader(json, "");
  reader.Uint("version", &version);
  const Json* pools = reader.Member("pools");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  if (version != 1 || pools == nullptr)
    return Error{.code = Code::kCorrupt, .what = "no pools of version 1"};
  ASSIGN_OR_RETURN(const std::vector<PoolSpec> specs, ParsePoolSpecs(*pools, "pools"));
  for (const PoolSpec& spec : specs) kept_[spec.name] = spec;
  return OkStatus();
}

void SandboxPools::Recover() {
  const Result<std::string> text = ReadFile(path_, kMaxPoolsFileBytes);
  if (!text.has_value() && text.error().code == Code::kNotFound) return;
  const Status read = text.has_value() ? Read(*text) : Status(text.error());
  if (read.has_value()) return;
  kept_.clear();
  const std::string aside = path_ + ".broken";
  const bool moved = std::rename(path_.c_str(), aside.c_str()) == 0;
  Log(LogLevel::kError, "the pools that are kept cannot be read",
      {{"file", path_}, {"moved_to", moved ? aside : ""}, {"error", read.error().ToString()}});
}

std::string SandboxPools::Text(const std::map<std::string, PoolSpec>& specs) const {
  Json list = Json::array();
  for (const auto& [name, spec] : specs) list.push_back(PoolSpecJson(spec));
  return oci::PrintJson({{"version", 1}, {"pools", std::move(list)}});
}

// What the configuration and the API say, against what there is. The configuration comes first.
void SandboxPools::Apply() {
  std::map<std::string, std::pair<PoolSpec, bool>> wanted;
  for (const auto& [name, spec] : kept_) wanted[name] = {spec, false};
  for (const PoolSpec& spec : api_.config.sandbox_pools) wanted[spec.name] = {spec, true};
  for (auto it = pools_.begin(); it != pools_.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    Empty(*it->second);
    it = pools_.erase(it);
  }
  for (auto& [name, want] : wanted) {
    auto& pool = pools_[name];
    if (pool == nullptr) pool = std::make_shared<Pool>();
    if (PoolSpecJson(pool->spec) != PoolSpecJson(want.first)) {
      pool->not_before = {};
      pool->failures = 0;
      pool->plan_due = {};
    }
    pool->spec = std::move(want.first);
    pool->configured = want.second;
  }
  Schedule(Milliseconds(0));
}

void SandboxPools::Start() {
  started_ = true;
  Apply();
  std::vector<SandboxEntry*> unwanted;
  for (const auto& [id, entry] : sandboxes_.living_) {
    if (!entry->facts.fields.pooled || entry->ending) continue;
    const auto pool = pools_.find(entry->facts.fields.pool);
    if (enabled() && pool != pools_.end())
      pool->second->members[id] = {.check = Check::kDue, .begun = Loop::Now()};
    else
      unwanted.push_back(entry.get());
  }
  for (SandboxEntry* entry : unwanted) GiveUp(*entry);
}

void SandboxPools::Stop() {
  started_ = false;
  timer_.Cancel();
  for (const auto& [name, pool] : pools_)
    for (const auto& sink : std::exchange(pool->making, {})) sink->Cancel();
}

void SandboxPools::Reload() {
  if (!started_) return;
  for (const auto& [name, pool] : pools_) pool->plan_due = {};  // defaults may be others now
  Apply();
}

// One after the other: what is on disk is always what was answered last.
void SandboxPools::Change(std::function<Result<std::map<std::string, PoolSpec>>()> change,
                          Done done) {
  changes_.push_back([this, change = std::move(change), done = std::move(done)] {
    Result<std::map<std::string, PoolSpec>> changed = change();
    if (!changed.has_value()) {
      done(changed.error());
      return NextChange();
    }
    const auto written = [this, alive = std::weak_ptr(alive_), done,
                          specs = *changed](const Status& status) {
      if (alive.expired()) return;
      if (status.has_value()) {
        kept_ = specs;
        Apply();
      }
      done(status);
      NextChange();
    };
    const Status begun =
        api_.worker.Submit([&loop = api_.loop, path = path_, text = Text(*changed), written] {
          const Status status = WriteFileAtomic(path, text, Durability::kDisk);
          loop.Post([written, status] { written(status); });
        });
    if (!begun.has_value()) written(begun);
  });
  if (changes_.size() == 1) changes_.front()();
}

void SandboxPools::NextChange() {
  api_.loop.Post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    changes_.pop_front();
    if (!changes_.empty()) changes_.front()();
  });
}

void SandboxPools::Put(PoolSpec spec, Done done) {
  Change(
      [this, spec]() -> Result<std::map<std::string, PoolSpec>> {
        const auto pool = pools_.find(spec.name);
        if (pool != pools_.end() && pool->second->configured)
          return BadState("pool " + spec.name + " is the configuration's");
        auto specs = kept_;
        specs[spec.name] = spec;
        if (specs.size() > kMaxPools)
          return Error{.code = Code::kLimit,
                       .what = std::to_string(kMaxPools) + " pools are there already"};
        if (Text(specs).size() > kMaxPoolsFileBytes)
          return Error{.code = Code::kLimit, .what = "pools would take too much to remember"};
        return specs;
      },
      std::move(done));
}

void SandboxPools::Remove(const std::string& name, Done done) {
  const auto shared = std::make_shared<Done>(std::move(done));
  Change(
      [this, name]() -> Result<std::map<std::string, PoolSpec>> {
        const auto pool = pools_.find(name);
        if (pool == pools_.end())
          return Error{.code = Code::kNotFound, .what = "no pool \"" + name + "\""};
        if (pool->second->configured) return BadState("pool " + name + " is the configuration's");
        auto specs = kept_;
        specs.erase(name);
        return specs;
      },
      [this, name, shared](const Status& status) {
        if (!status.has_value()) return (*shared)(status);
        drains_.push_back({name, *shared});
        LookAtDrains();
      });
}

// All that waits in it goes, and what is being made for it.
void SandboxPools::Empty(Pool& pool) {
  for (const auto& sink : std::exchange(pool.making, {})) sink->Cancel();
  pool.members.clear();
  std::vector<SandboxEntry*> entries;
  for (const auto& [id, entry] : sandboxes_.living_)
    if (entry->facts.fields.pooled && entry->facts.fields.pool == pool.spec.name)
      entries.push_back(entry.get());
  for (SandboxEntry* entry : entries) GiveUp(*entry);
}

void SandboxPools::LookAtDrains() {
  const auto left = [this](const std::string& name) {
    return std::any_of(sandboxes_.living_.begin(), sandboxes_.living_.end(), [&](const auto& item) {
      const SandboxEntry& entry = *item.second;
      return entry.facts.fields.pooled && entry.facts.fields.pool == name && !entry.quarantined;
    });
  };
  std::vector<Done> done;
  std::erase_if(drains_, [&](const Drain& drain) {
    if (!pools_.contains(drain.name) && left(drain.name)) return false;
    done.push_back(drain.done);  // or there is another of that name already
    return true;
  });
  for (const Done& one : done) one(OkStatus());
  if (!drains_.empty()) Schedule(kPoolQuickTick);
}

// --- keeping them filled

SandboxEntry* SandboxPools::Living(const std::string& id) const {
  SandboxEntry* const entry = sandboxes_.Living(id);
  return entry == nullptr || entry->ending ? nullptr : entry;
}

size_t SandboxPools::ReadyCount(const Pool& pool) const {
  return static_cast<size_t>(
      std::count_if(pool.members.begin(), pool.members.end(), [this](const auto& member) {
        return member.second.check == Check::kPassed && Living(member.first) != nullptr;
      }));
}

uint64_t SandboxPools::Wanted(const Pool& pool) const {
  if (!enabled()) return 0;
  return WantedMembers(pool.spec, pool.takes.PerSecond(Loop::Now()), pool.make_seconds);
}

void SandboxPools::Schedule(Milliseconds pause) {
  const SteadyTime at = Loop::Now() + pause;
  if (!started_ || (timer_.running() && tick_at_ <= at)) return;
  tick_at_ = at;
  timer_.StartAt(api_.loop, at, [this] { Tick(); });
}

void SandboxPools::Tick() {
  LookAtDrains();
  if (busy_() && ++postponed_ < kPoolPostponements) return Schedule(kPoolQuickTick);
  postponed_ = 0;
  for (const auto& [name, pool] : Pools(pools_)) Tend(pool);
  if (SandboxEntry* spare = sandboxes_.admission_.Strained() ? Spare() : nullptr) Yield(*spare);
  if (!pools_.empty()) Schedule(kPoolTick);
}

void SandboxPools::Tend(const std::shared_ptr<Pool>& pool) {
  Reap(*pool);
  // One after the other: the worker is there for requests.
  const bool due_for_plan = Loop::Now() >= pool->plan_due;
  const bool free = std::none_of(pools_.begin(), pools_.end(),
                                 [](const auto& other) { return other.second->planning; });
  if (due_for_plan && free && enabled()) BeginPlan(pool);
  if (pool->plan) Retire(*pool);
  for (const auto& [id, member] : std::map(pool->members)) {
    if (member.check == Check::kDue) CheckMember(pool, id);
    if (member.check == Check::kUnderWay && Loop::Now() > member.check_until)
      Checked(*pool, id,
              Error{.code = Code::kUnavailable, .what = "the first program in it did not end"});
  }
  const uint64_t wanted = Wanted(*pool), have = pool->members.size() + pool->making.size();
  if (have > wanted && !pool->members.empty()) {
    const std::string id = pool->members.begin()->first;
    pool->members.erase(id);
    if (SandboxEntry* entry = Living(id)) GiveUp(*entry);
    return Schedule(kPoolQuickTick);
  }
  pool->waits_for = have < wanted ? WhyNotNow(*pool) : "";
  if (have >= wanted || pool->planning || due_for_plan) return;
  if (pool->waits_for.empty()) Make(pool);
  // What waits for a failure's end, or for room, is looked at again in its time.
  if (pool->waits_for.empty() || pool->waits_for == "turn") Schedule(kPoolQuickTick);
}

// Those that ended by themselves. One after the other of them is as bad as one that cannot be made.
void SandboxPools::Reap(Pool& pool) {
  for (auto it = pool.members.begin(); it != pool.members.end();) {
    if (Living(it->first) != nullptr) {
      ++it;
      continue;
    }
    const std::string id = it->first;
    it = pool.members.erase(it);
    if (Loop::Now() < yield_until_) continue;
    Failed(pool,
           Error{.code = Code::kUnavailable, .what = "sandbox " + id + " ended while it waited"});
  }
}

// What a request would not get any more: of another plan, or of an image that the name does not
// mean any longer.
void SandboxPools::Retire(Pool& pool) {
  const Result<rootfs::Image> image = sandboxes_.parts_.store.Resolve(pool.plan->fields.image);
  std::vector<SandboxEntry*> stale;
  for (const auto& [id, member] : pool.members) {
    SandboxEntry* const entry = Living(id);
    if (entry == nullptr) continue;
    const bool other_image = image.has_value() && image->id != entry->facts.image_id;
    if (other_image || entry->facts.fields.pool_key != pool.key) stale.push_back(entry);
  }
  for (SandboxEntry* entry : stale) {
    pool.members.erase(entry->facts.id);
    GiveUp(*entry);
  }
}

void SandboxPools::GiveUp(SandboxEntry& entry, std::function<void()> gone) {
  sandboxes_.Destroy(entry, MoveCause::kAbandoned, [gone = std::move(gone)](const Status&) {
    if (gone) gone();
  });
}

// What the pool's request means now: templates are files, which change.
void SandboxPools::BeginPlan(const std::shared_ptr<Pool>& pool) {
  pool->planning = true;
  pool->plan_due = Loop::Now() + kPoolPlanTime;
  const Status begun = api_.worker.Submit([this, alive = std::weak_ptr(alive_), &loop = api_.loop,
                                           weak = std::weak_ptr(pool), request = pool->spec.request,
                                           config = api_.config] {
    auto plan = std::make_shared<Result<CreatePlan>>(PlanCreate(request, config));
    loop.Post([this, alive, weak, plan] {
      const auto planned = weak.lock();
      if (!alive.expired() && planned != nullptr) Planned(*planned, std::move(*plan));
    });
  });
  if (!begun.has_value()) pool->planning = false;
}

void SandboxPools::Planned(Pool& pool, Result<CreatePlan> plan) {
  pool.planning = false;
  Schedule(Milliseconds(0));
  Status poolable = plan.has_value() ? CheckPoolable(plan->fields) : Status(plan.error());
  if (!poolable.has_value()) {
    pool.plan.reset();
    pool.key.clear();
    return Note(pool, poolable.error());
  }
  if (!pool.plan) pool.error.reset();
  SandboxFields& fields = plan->fields;
  const std::string key = PoolKey(fields, plan->stages);
  if (key != pool.key) {
    pool.failures = 0;
    pool.not_before = {};
  }
  pool.key = key;
  // What comes with the request that takes it.
  fields.name = fields.owner = fields.session_key = "";
  fields.labels.clear();
  fields.ports.clear();
  fields.timeouts = Timeouts{};
  fields.pool = pool.spec.name;
  fields.pool_key = key;
  fields.pooled = true;
  plan->awaited = plan->stages.size();  // all of them, before it counts as ready
  pool.plan = std::move(*plan);
}

// Why a sandbox that is missing is not made at this moment; "": it is.
std::string SandboxPools::WhyNotNow(const Pool& pool) const {
  const SteadyTime now = Loop::Now();
  if (!pool.plan) return pool.error ? "failure" : "plan";
  if (now < pool.not_before) return "failure";
  if (now < yield_until_) return "room";
  if (sandboxes_.admission_.Strained()) return "pressure";
  if (!sandboxes_.admission_.HasRoom(pool.plan->fields) ||
      sandboxes_.living_.size() >= api_.config.max_sandboxes)
    return "room";
  size_t making = 0;
  for (const auto& [name, other] : pools_) making += other->making.size();
  return making >= kPoolMakesAtOnce || now < make_at_ ? "turn" : "";
}

void SandboxPools::Make(const std::shared_ptr<Pool>& pool) {
  make_at_ = Loop::Now() + kPoolMakeInterval;
  auto sink = std::make_shared<PoolSink>(*this, pool);
  pool->making.push_back(sink);
  Request request;
  request.peer = OwnPeer();
  const CreatePlan plan = *pool->plan;
  std::make_shared<SandboxStart>(api_, request, Responder(std::move(sink)), plan)->Run(plan.fields);
}

// The answer to one that was asked for: it is there, but nobody has run anything in it yet.
void SandboxPools::Made(const std::shared_ptr<Pool>& pool, const PoolSink& sink,
                        const Reply& reply) {
  std::erase_if(pool->making, [&](const auto& one) { return one.get() == &sink; });
  const Result<Json> json = oci::ParseJson(reply.body, {.max_bytes = kMaxBodyBytes});
  if (!json.has_value()) return Failed(*pool, json.error());
  if (reply.status != 201) {
    if (Loop::Now() < yield_until_) return;  // given up, most likely
    const Json error = json->value("error", Json::object());
    return Failed(*pool,
                  Error{.code = CodeOfName(error.value("code", "")).value_or(Code::kInternal),
                        .what = error.value("message", "")});
  }
  const std::string id = json->value("id", "");
  pool->members[id] = {.check = Check::kDue, .begun = sink.begun};
  api_.loop.Post([this, alive = std::weak_ptr(alive_), weak = std::weak_ptr(pool), id] {
    const auto made = weak.lock();
    if (!alive.expired() && made != nullptr && made->members.contains(id)) CheckMember(made, id);
  });
}

void SandboxPools::Failed(Pool& pool, const Error& error) {
  ++pool.failed;
  ++pool.failures;
  pool.not_before = Loop::Now() + PoolBackoff(pool.failures);
  Note(pool, error);
}

void SandboxPools::Note(Pool& pool, const Error& error) {
  const bool again = pool.error && pool.error->what == error.what;
  pool.error = error;
  pool.error_at = std::chrono::system_clock::now();
  Log(again ? LogLevel::kDebug : LogLevel::kWarning, "sandboxes could not be made ahead",
      {{"pool", pool.spec.name},
       {"failures", std::to_string(pool.failures)},
       {"error", error.ToString()}});
}

// Ready means that a program has run in it, to its end.
void SandboxPools::CheckMember(const std::shared_ptr<Pool>& pool, const std::string& id) {
  SandboxEntry* const entry = Living(id);
  Member& member = pool->members[id];
  if (entry == nullptr || entry->commands == nullptr || member.check != Check::kDue) return;
  member.check = Check::kUnderWay;
  member.check_until = Loop::Now() + kPoolCheckTime;
  const auto checked = [this, alive = std::weak_ptr(alive_), weak = std::weak_ptr(pool),
                        id](const Status& passed) {
    const auto checked_pool = weak.lock();
    if (!alive.expired() && checked_pool != nullptr) Checked(*checked_pool, id, passed);
  };
  const Result<int> program = api_.files.Fd();
  if (!program.has_value()) return checked(program.error());
  ToolSpec tool;
  tool.args = {"hutch-files", R"({"op":"stat","path":"/"})"};
  tool.program_fd = *program;
  const auto process = sandboxes_.RunTool(*entry, std::move(tool), [checked](Result<int> outcome) {
    if (!outcome.has_value()) return checked(outcome.error());
    if (WIFEXITED(*outcome) && WEXITSTATUS(*outcome) == 0) return checked(OkStatus());
    checked(Error{
        .code = Code::kUnavailable,
        .what = "the first program in it ended with wait status " + std::to_string(*outcome)});
  });
  if (!process.has_value()) checked(process.error());
}

void SandboxPools::Checked(Pool& pool, const std::string& id, const Status& passed) {
  const auto member = pool.members.find(id);
  if (member == pool.members.end()) return;
  if (!passed.has_value()) {
    pool.members.erase(member);
    if (SandboxEntry* entry = Living(id)) GiveUp(*entry);
    return Failed(pool, passed.error());
  }
  const double seconds = std::chrono::duration<double>(Loop::Now() - member->second.begun).count();
  pool.make_seconds = pool.make_seconds == 0
                          ? seconds
                          : (1 - kNewestShare) * pool.make_seconds + kNewestShare * seconds;
  member->second.check = Check::kPassed;
  ++pool.made;
  pool.failures = 0;
  pool.error.reset();
}

// --- what is told of them

Json SandboxPools::PoolJson(const Pool& pool) const {
  Json json = PoolSpecJson(pool.spec);
  json["source"] = pool.configured ? "configuration" : "api";
  json["counts"] = {{"wanted", Wanted(pool)},
                    {"ready", ReadyCount(pool)},
                    {"making", pool.members.size() + pool.making.size() - ReadyCount(pool)},
                    {"hits", pool.hits},
                    {"misses", pool.misses},
                    {"made", pool.made},
                    {"failed", pool.failed}};
  json["make_ms"] = pool.make_seconds * 1000;
  json["takes_per_second"] = pool.takes.PerSecond(Loop::Now());
  json["waits_for"] = !enabled()               ? Json("pools are off")
                      : pool.waits_for.empty() ? Json()
                                               : Json(pool.waits_for);
  json["last_error"] = nullptr;
  if (pool.error)
    json["last_error"] = {{"code", CodeName(pool.error->code)},
                          {"message", pool.error->what.substr(0, kMaxKeptErrorBytes)},
                          {"at", FormatRfc3339(pool.error_at)}};
  return json;
}

Result<Json> SandboxPools::ToJson(const std::string& name) const {
  const auto pool = pools_.find(name);
  if (pool == pools_.end())
    return Error{.code = Code::kNotFound, .what = "no pool \"" + name + "\""};
  return PoolJson(*pool->second);
}

Json SandboxPools::ListJson() const {
  Json list = Json::array();
  for (const auto& [name, pool] : pools_) list.push_back(PoolJson(*pool));
  return list;
}

std::vector<const SandboxEntry*> SandboxPools::Pooled() const {
  std::vector<const SandboxEntry*> entries;
  for (const auto& [id, entry] : sandboxes_.living_)
    if (entry->facts.fields.pooled) entries.push_back(entry.get());
  return entries;
}

void SandboxPools::AddMetrics(MetricsText* text) const {
  struct Row {
    const char* name;
    const char* help;
    uint64_t Pool::*value;
  };
  constexpr Row kRows[] = {
      {"hutch_pool_hits_total", "Requests that got a sandbox made ahead.", &Pool::hits},
      {"hutch_pool_misses_total", "Requests for which a pool had none that fits.", &Pool::misses},
      {"hutch_pool_made_total", "Sandboxes made ahead.", &Pool::made},
      {"hutch_pool_failed_total", "Sandboxes that could not be made ahead, or ended there.",
       &Pool::failed}};
  for (const Row& row : kRows) {
    text->Family(row.name, "counter", row.help);
    for (const auto& [name, pool] : pools_)
      text->Sample({{"pool", name}}, static_cast<double>((*pool).*row.value));
  }
  text->Family("hutch_pool_ready", "gauge", "Sandboxes made ahead that can be taken now.");
  for (const auto& [name, pool] : pools_)
    text->Sample({{"pool", name}}, static_cast<double>(ReadyCount(*pool)));
  text->Family("hutch_pool_wanted", "gauge", "Sandboxes that are to be ready.");
  for (const auto& [name, pool] : pools_)
    text->Sample({{"pool", name}}, static_cast<double>(Wanted(*pool)));
}

}  // namespace hutch::daemon
