#include "daemon/volume_keeping.h"

#include <algorithm>

#include "base/text.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using rootfs::VolumeFacts;
using rootfs::Volumes;

constexpr char kHint[] = "give size_bytes to have it made, or POST /v1/volumes";

// On a worker.
Result<HeldVolumes> PrepareNow(Volumes& volumes, const std::vector<VolumeFields>& wanted) {
  HeldVolumes held;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const VolumeFields& one = wanted[i];
    auto mount = volumes.Attach(one.name);
    if (!mount && mount.error().code == Code::kNotFound && one.size_bytes != 0) {
      const auto made = volumes.Create({.name = one.name,
                                        .size_bytes = one.size_bytes,
                                        .created_at = std::chrono::system_clock::now()});
      if (!made && made.error().code != Code::kExists) {  // another request may have been first
        Error error = made.error();
        error.field = VolumeField(i);
        return error;
      }
      mount = volumes.Attach(one.name);
    }
    if (!mount) {
      Error error = std::move(mount).error();
      error.field = VolumeField(i);
      if (error.code == Code::kNotFound) error.hint = kHint;
      return error;
    }
    held.push_back(std::move(*mount));
  }
  return held;
}

bool Fits(const std::vector<LabelSelector>& labels, const VolumeFacts& facts) {
  return std::all_of(labels.begin(), labels.end(),
                     [&](const LabelSelector& one) { return one.Fits(facts.labels); });
}

}  // namespace

std::vector<const SandboxEntry*> VolumeKeeping::UsersOf(const std::string& name) const {
  std::vector<const SandboxEntry*> users;
  for (const SandboxEntry* entry : sandboxes_.ListAll()) {
    if (HasEnded(entry->moments.state) && entry->sandbox == nullptr) continue;
    const auto& volumes = entry->facts.fields.volumes;
    if (std::any_of(volumes.begin(), volumes.end(),
                    [&](const VolumeFields& one) { return one.name == name; }))
      users.push_back(entry);
  }
  return users;
}

Json VolumeKeeping::ToJson(const VolumeFacts& facts) const {
  Json users = Json::array();
  for (const SandboxEntry* entry : UsersOf(facts.name))
    for (const VolumeFields& one : entry->facts.fields.volumes)
      if (one.name == facts.name)
        users.push_back(
            {{"id", entry->facts.id},
             {"name", entry->facts.fields.name.empty() ? Json() : Json(entry->facts.fields.name)},
             {"target", one.target},
             {"readonly", one.readonly}});
  const auto use = volumes_.Measure(facts.name);
  const auto number = [&](uint64_t rootfs::VolumeMount::Use::*member) {
    return use.has_value() ? Json((*use).*member) : Json();
  };
  using Use = rootfs::VolumeMount::Use;
  return {{"name", facts.name},
          {"state", facts.size_bytes == 0 ? "damaged" : "ready"},
          {"size_bytes", facts.size_bytes},
          {"available_bytes", use ? Json(use->total_bytes - use->used_bytes) : Json()},
          {"used_bytes", number(&Use::used_bytes)},
          {"inodes", number(&Use::inodes)},
          {"inodes_used", number(&Use::inodes_used)},
          {"disk_bytes", volumes_.disk_bytes(facts.name)},
          {"owner", std::to_string(facts.uid) + ":" + std::to_string(facts.gid)},
          {"labels", facts.labels},
          {"created_at", FormatRfc3339(facts.created_at)},
          {"sandboxes", std::move(users)}};
}

Json VolumeKeeping::List(const std::vector<LabelSelector>& labels) const {
  Json list = Json::array();
  uint64_t size = 0, disk = 0;
  for (const VolumeFacts& facts : volumes_.List()) {
    size += facts.size_bytes;
    disk += volumes_.disk_bytes(facts.name);
    if (Fits(labels, facts)) list.push_back(ToJson(facts));
  }
  return {{"volumes", std::move(list)}, {"size_bytes", size}, {"disk_bytes", disk}};
}

Result<Json> VolumeKeeping::Get(const std::string& name) const {
  ASSIGN_OR_RETURN(const VolumeFacts facts, volumes_.Find(name));
  return ToJson(facts);
}

Status VolumeKeeping::CheckTotal(uint64_t more_bytes) const {
  const uint64_t most = config_.volumes_total_bytes;
  if (most == 0) return OkStatus();
  uint64_t total = 0;
  for (const VolumeFacts& facts : volumes_.List()) total += facts.size_bytes;
  if (total <= most && more_bytes <= most - total) return OkStatus();
  return Error{.code = Code::kLimit,
               .what = "all volumes together would have " + std::to_string(total + more_bytes) +
                       " bytes, and " + std::to_string(most) +
                       " may be (limits.volumes_total_bytes)",
               .field = "size_bytes"};
}

Status VolumeKeeping::Submit(Worker& worker, Job job, Done done) {
  const auto shared = std::make_shared<Done>(std::move(done));
  return worker.Submit([this, &loop = loop_, job = std::move(job), shared, gone = stopping_] {
    auto made = std::make_shared<Result<VolumeFacts>>(job());
    loop.Post([this, made, shared, gone] {
      if (*gone) return;
      (*shared)(made->has_value() ? Result<Json>(ToJson(**made)) : made->error());
    });
  });
}

Status VolumeKeeping::Create(VolumeFacts wanted, Done done) {
  RETURN_IF_ERROR(CheckTotal(wanted.size_bytes));
  return Submit(
      worker_, [&volumes = volumes_, wanted] { return volumes.Create(wanted); }, std::move(done));
}

Status VolumeKeeping::Grow(const std::string& name, uint64_t size_bytes, Done done) {
  ASSIGN_OR_RETURN(const VolumeFacts facts, volumes_.Find(name));
  if (size_bytes > facts.size_bytes) RETURN_IF_ERROR(CheckTotal(size_bytes - facts.size_bytes));
  return Submit(
      images_, [&volumes = volumes_, name, size_bytes] { return volumes.Grow(name, size_bytes); },
      std::move(done));
}

Status VolumeKeeping::Copy(const std::string& from, const std::string& to, Progress progress,
                           Cancelled cancelled, Done done) {
  ASSIGN_OR_RETURN(const VolumeFacts facts, volumes_.Find(from));
  RETURN_IF_ERROR(CheckTotal(facts.size_bytes));
  const rootfs::ProgressFn report = ToLoop(loop_, std::move(progress));
  return Submit(
      images_,
      [&volumes = volumes_, from, to, report, cancelled, stopping = stopping_] {
        return volumes.Copy(
            from, to,
            [&](uint64_t at, uint64_t total) {
              if (*stopping) *cancelled = true;
              report({.stage = "copy", .subject = from, .done = at, .total = total});
            },
            *cancelled);
      },
      std::move(done));
}

Status VolumeKeeping::Remove(const std::string& name, Done done) {
  ASSIGN_OR_RETURN(const VolumeFacts facts, volumes_.Find(name));
  std::vector<std::string> ids;
  for (const SandboxEntry* entry : UsersOf(name)) ids.push_back(entry->facts.id);
  if (!ids.empty())
    return Error{.code = Code::kBadState,
                 .what = "volume \"" + name + "\" is in use by " + Join(ids, ", "),
                 .hint = "destroy them first"};
  return Submit(
      worker_,
      [&volumes = volumes_, name, facts]() -> Result<VolumeFacts> {
        RETURN_IF_ERROR(volumes.Remove(name));
        return facts;
      },
      std::move(done));
}

Status VolumeKeeping::Prune(const std::vector<LabelSelector>& labels, PruneMode mode, Done done) {
  std::vector<std::string> names;
  uint64_t disk = 0;
  for (const VolumeFacts& facts : volumes_.List()) {
    if (!Fits(labels, facts) || !UsersOf(facts.name).empty()) continue;
    names.push_back(facts.name);
    if (mode == PruneMode::kDryRun) disk += volumes_.disk_bytes(facts.name);
  }
  const auto answer = [mode](const std::vector<std::string>& gone, uint64_t freed) {
    return Json{{"dry_run", mode == PruneMode::kDryRun}, {"volumes", gone}, {"freed_bytes", freed}};
  };
  if (mode == PruneMode::kDryRun) {
    done(answer(names, disk));
    return OkStatus();
  }
  const auto shared = std::make_shared<Done>(std::move(done));
  return worker_.Submit([&loop = loop_, &volumes = volumes_, names, answer, shared] {
    std::vector<std::string> gone;
    uint64_t freed = 0;
    for (const std::string& name : names) {
      const uint64_t bytes = volumes.disk_bytes(name);
      // One that a sandbox has taken meanwhile stays.
      if (!volumes.Remove(name).has_value()) continue;
      gone.push_back(name);
      freed += bytes;
    }
    loop.Post([shared, json = answer(gone, freed)] { (*shared)(json); });
  });
}

void VolumeKeeping::Prepare(const std::vector<VolumeFields>& wanted,
                            std::function<void(const Result<HeldVolumes>&)> then) {
  uint64_t more = 0;
  for (const VolumeFields& one : wanted)
    if (!volumes_.Find(one.name).has_value()) more += one.size_bytes;
  Status begun = more == 0 ? OkStatus() : CheckTotal(more);
  const auto shared = std::make_shared<decltype(then)>(std::move(then));
  if (begun.has_value())
    begun = worker_.Submit([&loop = loop_, &volumes = volumes_, wanted, shared] {
      auto held = std::make_shared<Result<HeldVolumes>>(PrepareNow(volumes, wanted));
      loop.Post([held, shared] { (*shared)(*held); });
    });
  if (!begun.has_value()) (*shared)(begun.error());
}

}  // namespace hutch::daemon
