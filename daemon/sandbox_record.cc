#include "daemon/sandbox_record.h"

#include <iterator>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using oci::ObjectReader;

constexpr const char* kLifecycleNames[] = {"none", "running", "done", "failed", "interrupted"};

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json TimeJson(WallTime start, uint64_t seconds) {
  return seconds == 0 ? Json() : Json(FormatRfc3339(start + std::chrono::seconds(seconds)));
}

// {"A": "1"} of {"A=1"}.
Json EnvJson(const std::vector<std::string>& env) {
  Json json = Json::object();
  for (const std::string& entry : env) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) json[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return json;
}

Json LimitsJson(const SandboxFields& fields) {
  return {{"memory_bytes", fields.memory_bytes},
          {"swap_bytes", 0},
          {"cpus", fields.cpus},
          {"pids", fields.pids},
          {"disk_bytes", fields.disk_bytes},
          {"open_files", fields.open_files}};
}

Json TimingsJson(const SandboxFacts& facts) {
  Json json = Json::object();
  for (const auto& [step, ms] : facts.timings_ms) json[step] = ms;
  return json;
}

Json LifecycleJson(const LifecycleFacts& facts) {
  if (facts.state == LifecycleFacts::State::kNone) return nullptr;
  return {{"state", kLifecycleNames[static_cast<size_t>(facts.state)]},
          {"stage", OrNull(facts.stage)},
          {"error", OrNull(facts.error)}};
}

Json RemoteEnvJson(const RemoteEnv& env) {
  Json json = Json::object();
  for (const auto& [name, value] : env) json[name] = value ? Json(*value) : Json();
  return json;
}

Json DirectoriesJson(const std::vector<WritableDirectory>& directories) {
  Json list = Json::array();
  for (const WritableDirectory& one : directories)
    list.push_back({{"path", one.path},
                    {"mode", one.mode},
                    {"users", one.users},
                    {"only_if_missing", one.only_if_missing}});
  return list;
}

Status LoadDirectories(const Json& json, std::vector<WritableDirectory>* directories) {
  for (const Json& item : json) {
    WritableDirectory one;
    uint64_t mode = one.mode;
    RETURN_IF_ERROR(ObjectReader(item, "template.directories")
                        .String("path", &one.path)
                        .Uint("mode", &mode, 0, 07777)
                        .Bool("users", &one.users)
                        .Bool("only_if_missing", &one.only_if_missing)
                        .Done(ObjectReader::Unknown::kIgnore));
    one.mode = static_cast<uint32_t>(mode);
    directories->push_back(std::move(one));
  }
  return OkStatus();
}

Json TemplateFactsJson(const SandboxFacts& facts) {
  Json lifecycle = LifecycleJson(facts.lifecycle);
  if (!lifecycle.is_null()) lifecycle["awaited"] = facts.lifecycle.awaited;
  return {{"name", facts.fields.template_name},
          {"remote_env", RemoteEnvJson(facts.fields.remote_env)},
          {"directories", DirectoriesJson(facts.fields.directories)},
          {"lifecycle", std::move(lifecycle)}};
}

// "" for what is no text.
std::string TextOf(const Json& object, const char* name) {
  const bool has = object.is_object() && object.contains(name) && object[name].is_string();
  return has ? object[name].get<std::string>() : std::string();
}

Status LoadTemplateFacts(const Json& json, SandboxFacts* facts) {
  ObjectReader reader(json, "template");
  reader.String("name", &facts->fields.template_name);
  const Json* remote = reader.Member("remote_env");
  const Json* lifecycle = reader.Member("lifecycle");
  const Json* directories = reader.Member("directories");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (directories != nullptr)
    RETURN_IF_ERROR(LoadDirectories(*directories, &facts->fields.directories));
  if (remote != nullptr && remote->is_object())
    for (const auto& [name, value] : remote->items()) {
      auto& kept = facts->fields.remote_env[name];
      if (value.is_string()) kept = value.get<std::string>();
    }
  if (lifecycle == nullptr) return OkStatus();
  // What cannot be read of it is left out: a sandbox is not given up for words of its commands.
  const std::string state = TextOf(*lifecycle, "state");
  facts->lifecycle.stage = TextOf(*lifecycle, "stage");
  facts->lifecycle.error = TextOf(*lifecycle, "error");
  IgnoreError(ObjectReader(*lifecycle, "template.lifecycle")
                  .Bool("awaited", &facts->lifecycle.awaited)
                  .Done(ObjectReader::Unknown::kIgnore),
              "then nobody waits for it");
  for (size_t i = 0; i < std::size(kLifecycleNames); ++i)
    if (state == kLifecycleNames[i]) facts->lifecycle.state = static_cast<LifecycleFacts::State>(i);
  return OkStatus();
}

Json CallerJson(const SandboxFacts& facts) {
  return {{"uid", facts.caller_uid},
          {"idempotency_key", OrNull(facts.fields.idempotency_key)},
          {"digests", facts.fields.digests}};
}

Json PoolJson(const SandboxFields& fields) {
  if (fields.pool.empty()) return nullptr;
  return {{"name", fields.pool}, {"key", fields.pool_key}, {"pooled", fields.pooled}};
}

Status LoadPool(const Json& json, SandboxFields* fields) {
  return ObjectReader(json, "pool")
      .String("name", &fields->pool)
      .String("key", &fields->pool_key)
      .Bool("pooled", &fields->pooled)
      .Done(ObjectReader::Unknown::kIgnore);
}

Status LoadCaller(const Json& json, SandboxFacts* facts) {
  uint64_t uid = 0;
  RETURN_IF_ERROR(ObjectReader(json, "caller")
                      .Uint("uid", &uid, 0, UINT32_MAX)
                      .String("idempotency_key", &facts->fields.idempotency_key)
                      .StringMap("digests", &facts->fields.digests)
                      .Done(ObjectReader::Unknown::kIgnore));
  facts->caller_uid = static_cast<uint32_t>(uid);
  return OkStatus();
}

// While it is paused nothing is idle.
bool IdleRuns(SandboxState state) {
  return state == SandboxState::kCreating || state == SandboxState::kRunning;
}

Json ErrorOf(const Error& error) {
  return {{"code", CodeName(error.code)}, {"message", error.what.substr(0, kMaxKeptErrorBytes)}};
}

Error Damaged(const std::string& id, const std::string& what) {
  return Error{.code = Code::kCorrupt, .what = "state of " + id + ": " + what};
}

// From the version before it to the next one.
struct MigrationRow {
  uint64_t from;
  void (*migrate)(Json& record);
};
constexpr MigrationRow kMigrations[] = {
    {1, [](Json& record) { record["stops"] = 0u; }},  // none could be stopped
};
constexpr uint64_t kRecordVersion = 2;
static_assert(kMigrations[std::size(kMigrations) - 1].from == kRecordVersion - 1);

Status Migrate(const std::string& id, Json* record) {
  uint64_t version = 0;
  RETURN_IF_ERROR(
      ObjectReader(*record, "").Uint("version", &version).Done(ObjectReader::Unknown::kIgnore));
  if (version > kRecordVersion)
    return Error{.code = Code::kUnsupported,
                 .what = "the record of " + id + " has version " + std::to_string(version) +
                         ", of a newer hutchd",
                 .field = "version"};
  for (const MigrationRow& row : kMigrations) {
    if (row.from != version) continue;
    row.migrate(*record);
    ++version;
  }
  if (version != kRecordVersion) return Damaged(id, "version " + std::to_string(version));
  return OkStatus();
}

}  // namespace

WallTime LifeBegins(const SandboxFacts& facts) {
  return facts.life_from.value_or(facts.created_at);
}

Json FieldsJson(const SandboxFields& fields) {
  Json limits = LimitsJson(fields);
  limits.erase("swap_bytes");
  return {{"image", fields.image},
          {"name", OrNull(fields.name)},
          {"owner", OrNull(fields.owner)},
          {"session_key", OrNull(fields.session_key)},
          {"labels", fields.labels},
          {"env", fields.env},
          {"workdir", OrNull(fields.workdir)},
          {"user", OrNull(fields.user)},
          {"proc", fields.proc},
          {"limits", std::move(limits)},
          {"rootfs", {{"readonly", fields.readonly_root}}},
          {"volumes", VolumesJson(fields.volumes)},
          {"timeouts", TimeoutsJson(fields.timeouts)},
          {"network", network::PolicyJson(fields.network)},
          {"relax", fields.relax}};
}

Json SandboxJson(const SandboxFacts& facts, const SandboxMoments& moments, const char* cgroup_mode,
                 const Error* error) {
  const SandboxFields& fields = facts.fields;
  const uint64_t idle = IdleRuns(moments.state) ? fields.timeouts.idle_seconds : 0;
  const bool stopped = moments.state == SandboxState::kStopped;
  const uint64_t lifetime = stopped ? 0 : fields.timeouts.lifetime_seconds;
  const bool ended = HasEnded(moments.state) && !facts.history.empty();
  const oci::User& user = facts.process.user;
  return {
      {"id", facts.id},
      {"name", OrNull(fields.name)},
      {"state", StateName(moments.state)},
      {"cause", facts.history.empty() ? Json() : Json(CauseName(facts.history.back().cause))},
      {"history", HistoryJson(facts.history)},
      {"error", error != nullptr ? ErrorOf(*error) : Json()},
      {"image", facts.image_reference},
      {"image_id", facts.image_id},
      {"template", OrNull(fields.template_name)},
      {"lifecycle", LifecycleJson(facts.lifecycle)},
      {"labels", fields.labels},
      {"owner", OrNull(fields.owner)},
      {"session_key", OrNull(fields.session_key)},
      {"caller_uid", facts.caller_uid},
      {"created_at", FormatRfc3339(facts.created_at)},
      {"ended_at", ended ? Json(FormatRfc3339(facts.history.back().at)) : Json()},
      {"expires_at", TimeJson(LifeBegins(facts), lifetime)},
      {"idle_expires_at", TimeJson(moments.last_activity, idle)},
      {"last_activity_at", FormatRfc3339(moments.last_activity)},
      {"user", std::to_string(user.uid) + ":" + std::to_string(user.gid)},
      {"workdir", facts.process.cwd},
      {"env", EnvJson(facts.process.env)},
      {"remote_env", RemoteEnvJson(fields.remote_env)},
      {"command", facts.process.args},
      {"limits", LimitsJson(fields)},
      {"rootfs", {{"readonly", fields.readonly_root}}},
      {"proc", fields.full_proc ? "full" : fields.proc},
      {"ports", PortListJson(facts.ports)},
      {"volumes", VolumesJson(fields.volumes)},
      {"network", network::PolicyJson(fields.network)},
      {"timeouts", TimeoutsJson(fields.timeouts)},
      {"cgroup_mode", cgroup_mode},
      {"pid", moments.pid > 0 ? Json(moments.pid) : Json()},
      {"host_id_start", moments.host_id_start},
      {"stopped_bytes", moments.stopped_bytes ? Json(*moments.stopped_bytes) : Json()},
      {"from_pool", facts.from_pool},
      {"pool", OrNull(fields.pool)},
      {"timings_ms", TimingsJson(facts)},
      {"relax", fields.relax},
      {"processes", moments.processes},
      {"reported", facts.reported},
  };
}

Status CheckRecord(const std::string& record) {
  if (record.size() <= kMaxSandboxRecordBytes - kRecordReserveBytes) return OkStatus();
  return Error{.code = Code::kLimit,
               .what = "what the request says would take " + FormatSize(record.size()) +
                       " to remember, more than " +
                       FormatSize(kMaxSandboxRecordBytes - kRecordReserveBytes)};
}

std::string SaveFacts(const SandboxFacts& facts) {
  const oci::ProcessSpec& process = facts.process;
  const Json paused_idle = facts.paused_idle_ms ? Json(*facts.paused_idle_ms) : Json();
  const Json life_from = facts.life_from ? Json(FormatRfc3339(*facts.life_from)) : Json();
  return oci::PrintJson({{"version", kRecordVersion},
                         {"request", FieldsJson(facts.fields)},
                         {"image_id", facts.image_id},
                         {"image_reference", facts.image_reference},
                         {"uid", process.user.uid},
                         {"gid", process.user.gid},
                         {"env", process.env},
                         {"cwd", process.cwd},
                         {"args", process.args},
                         {"cpus", process.cpus},
                         {"user_layer", facts.user_layer},
                         {"ports", PortListJson(facts.ports)},
                         {"template", TemplateFactsJson(facts)},
                         {"caller", CallerJson(facts)},
                         {"created_at", FormatRfc3339(facts.created_at)},
                         {"history", HistoryJson(facts.history)},
                         {"paused_idle_ms", paused_idle},
                         {"stops", facts.stops},
                         {"life_from", life_from},
                         {"paused_ms", facts.paused_ms},
                         {"from_pool", facts.from_pool},
                         {"pool", PoolJson(facts.fields)},
                         {"timings_ms", TimingsJson(facts)},
                         {"reported", facts.reported}});
}

Result<SandboxFacts> LoadFacts(const std::string& id, std::string_view saved,
                               const Config& config) {
  Config without_ceilings = config;  // what was granted stays granted
  without_ceilings.ceilings = Amounts{};
  SandboxFacts facts;
  facts.id = id;
  ASSIGN_OR_RETURN(Json json, oci::ParseJson(saved, {.max_bytes = kMaxSandboxRecordBytes}));
  RETURN_IF_ERROR(Migrate(id, &json));
  uint64_t uid = 0, gid = 0;
  std::string created_at, life_from;
  ObjectReader reader(json, "");
  reader.String("image_id", &facts.image_id)
      .String("image_reference", &facts.image_reference)
      .Uint("uid", &uid, 0, UINT32_MAX - 1)
      .Uint("gid", &gid, 0, UINT32_MAX - 1)
      .Strings("env", &facts.process.env, kMaxSandboxRecordBytes)
      .String("cwd", &facts.process.cwd)
      .Strings("args", &facts.process.args, size_t{2} * kMaxCommandArgs)
      .String("user_layer", &facts.user_layer)
      .String("created_at", &created_at)
      .String("life_from", &life_from)
      .Uint("stops", &facts.stops)
      .Uint("paused_ms", &facts.paused_ms)
      .Bool("from_pool", &facts.from_pool)
      .Strings("reported", &facts.reported);
  const Json* request = reader.Member("request");
  const Json* timings = reader.Member("timings_ms");
  const Json* cpus = reader.Member("cpus");
  const Json* made_from = reader.Member("template");
  const Json* ports = reader.Member("ports");
  const Json* caller = reader.Member("caller");
  const Json* history = reader.Member("history");
  const Json* paused_idle = reader.Member("paused_idle_ms");
  const Json* pool = reader.Member("pool");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (request == nullptr) return Damaged(id, "no request");
  ASSIGN_OR_RETURN(facts.fields, ParseSandboxFields(*request, without_ceilings));
  if (made_from != nullptr) RETURN_IF_ERROR(LoadTemplateFacts(*made_from, &facts));
  if (caller != nullptr) RETURN_IF_ERROR(LoadCaller(*caller, &facts));
  if (pool != nullptr) RETURN_IF_ERROR(LoadPool(*pool, &facts.fields));
  if (ports != nullptr) {
    ASSIGN_OR_RETURN(facts.ports, LoadPorts(*ports));
  }
  ASSIGN_OR_RETURN(facts.created_at, ParseRfc3339(created_at));
  if (!life_from.empty()) {
    ASSIGN_OR_RETURN(facts.life_from, ParseRfc3339(life_from));
  }
  if (history != nullptr) facts.history = LoadHistory(*history);
  if (paused_idle != nullptr && paused_idle->is_number_unsigned())
    facts.paused_idle_ms = paused_idle->get<uint64_t>();
  facts.process.user.uid = static_cast<uint32_t>(uid);
  facts.process.user.gid = static_cast<uint32_t>(gid);
  if (cpus != nullptr && cpus->is_array())
    for (const Json& cpu : *cpus)
      if (cpu.is_number_unsigned()) facts.process.cpus.push_back(cpu.get<uint32_t>());
  if (timings != nullptr && timings->is_object())
    for (const auto& [step, ms] : timings->items())
      if (ms.is_number()) facts.timings_ms.emplace_back(step, ms.get<double>());
  return facts;
}

}  // namespace hutch::daemon
