#include "daemon/info.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/pidfd.h"
#include "base/text.h"
#include "daemon/handlers.h"
#include "daemon/listener.h"
#include "daemon/openapi_text.h"
#include "rootfs/catalog.h"
#include "rootfs/overlay.h"

namespace hutch::daemon {
namespace {

oci::Json AmountsJson(const Amounts& amounts) {
  return {{"memory_bytes", amounts.memory_bytes},
          {"cpus", amounts.cpus},
          {"pids", amounts.pids},
          {"disk_bytes", amounts.disk_bytes},
          {"open_files", amounts.open_files},
          {"idle_seconds", amounts.idle_seconds},
          {"lifetime_seconds", amounts.lifetime_seconds},
          {"exec_timeout_seconds", amounts.exec_timeout_seconds},
          {"max_output_bytes", amounts.max_output_bytes}};
}

std::string KernelRelease() {
  struct utsname name {};
  return ::uname(&name) == 0 ? name.release : "unknown";
}

bool CanReadUserNamespaceOfPidfd() {
  const Result<Pidfd> self = Pidfd::Open(::getpid());
  if (!self.has_value()) return false;
  constexpr unsigned long kGetUserNamespace = 0xff09;  // PIDFD_GET_USER_NAMESPACE, Linux 6.11
  const UniqueFd userns(::ioctl(self->fd(), kGetUserNamespace, 0));
  return userns.valid();
}

bool CanRefuseDescriptors() {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket.valid() && RefuseDescriptors(socket.get()).has_value();
}

bool HasPressure() { return PathExists("/proc/pressure/memory"); }
bool HasTimeNamespace() { return PathExists("/proc/self/ns/time"); }
bool HasOverlayDescriptors() {
  return rootfs::ProbeLayerPassing() == rootfs::LayerPassing::kDescriptors;
}

struct FeatureRow {
  const char* name;
  bool (*has)();
};
constexpr FeatureRow kFeatures[] = {
    {"overlay_layers_by_descriptor", HasOverlayDescriptors},
    {"pidfd_namespaces", CanReadUserNamespaceOfPidfd},
    {"refuse_descriptors", CanRefuseDescriptors},
    {"pressure_stall_information", HasPressure},
    {"time_namespace", HasTimeNamespace},
};

}  // namespace

std::vector<std::string> ProbeFeatures() {
  std::vector<std::string> features;
  for (const FeatureRow& row : kFeatures)
    if (row.has()) features.emplace_back(row.name);
  return features;
}

Info::Info(const Config& config, const cgroups::Tree& tree, const runtime::Runtime& runtime,
           const Sandboxes& sandboxes, std::vector<std::string> features)
    : config_(config),
      tree_(tree),
      runtime_(runtime),
      sandboxes_(sandboxes),
      features_(std::move(features)),
      started_at_(std::chrono::system_clock::now()) {}

oci::Json Info::ToJson() const {
  size_t in_state[kSandboxStates] = {};
  for (const SandboxEntry* entry : sandboxes_.List())
    ++in_state[static_cast<size_t>(entry->moments.state)];
  oci::Json counts = {{"commands", sandboxes_.commands_running()}};
  for (size_t i = 0; i < kSandboxStates; ++i)
    counts[StateName(static_cast<SandboxState>(i))] = in_state[i];
  oci::Json quarantined = oci::Json::array();
  for (const SandboxEntry* entry : sandboxes_.Quarantined())
    quarantined.push_back(
        {{"id", entry->facts.id}, {"error", entry->error ? entry->error->ToString() : ""}});
  const runtime::Runtime::PoolState pool = runtime_.pool_state();
  return {{"version", HUTCH_VERSION},
          {"kernel", KernelRelease()},
          {"pid", ::getpid()},
          {"started_at", FormatRfc3339(started_at_)},
          {"cgroup",
           {{"mode", cgroups::ModeName(tree_.mode())},
            {"parent", tree_.parent()},
            {"controllers", tree_.controllers()}}},
          {"pools",
           {{"enabled", config_.pools == "on"},
            {"blanks_ready", pool.blanks_ready},
            {"blanks_wanted", pool.blanks_wanted},
            {"blanks_in_flight", pool.blanks_in_flight},
            {"links_ready", pool.links_ready}}},
          {"defaults", AmountsJson(config_.defaults)},
          {"ceilings", AmountsJson(config_.ceilings)},
          {"limits",
           {{"sandboxes", config_.max_sandboxes},
            {"commands_per_sandbox", config_.max_commands_per_sandbox},
            {"connections", config_.max_connections},
            {"memory_overcommit", config_.memory_overcommit}}},
          {"counts", std::move(counts)},
          {"admission", sandboxes_.AdmissionJson()},
          {"quarantined", std::move(quarantined)},
          {"features", features_},
          {"ids",
           {{"host_id_start", config_.host_id_start},
            {"ranges", config_.host_id_ranges},
            {"ids_per_range", 65536}}},
          {"directories", {{"state", config_.state_dir}, {"run", config_.run_dir}}},
          {"socket", config_.socket},
          {"tcp", config_.tcp.listen.empty() ? oci::Json() : oci::Json(config_.tcp.listen)},
          {"configuration", configuration_()}};
}

void HandleHealth(Api&, Request, Responder responder) {
  responder.Send(JsonReply(200, {{"status", "ok"}}));
}
void HandleInfo(Api& api, Request, Responder responder) {
  oci::Json json = api.info.ToJson();
  json["audit"] = AuditStateJson(api.audit);
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.worker.Submit(
      [&loop = api.loop, directory = api.config.catalog_dir, shared, json = std::move(json)] {
        loop.Post([shared, json, names = rootfs::CatalogNames(directory)]() mutable {
          json["catalog"] = std::move(names);
          shared->Send(JsonReply(200, json));
        });
      });
  if (!begun.has_value()) shared->Send(begun.error());
}
void HandleOpenApi(Api&, Request, Responder responder) {
  responder.Send(Reply{.status = 200, .body = kOpenApiText});
}

}  // namespace hutch::daemon
