#include "seccomp/filters.h"

#include <map>
#include <mutex>
#include <set>

#include "seccomp/conditions.h"
#include "seccomp/custom_profile.h"
#include "seccomp/default_program.h"

namespace hutch::seccomp {
namespace {

constexpr size_t kMaxCachedProfiles = 64;  // some 8 KiB each

class FilterCache {
 public:
  SharedFilters Find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  void Keep(const std::string& key, SharedFilters filters) {
    const std::lock_guard lock(mutex_);
    if (by_key_.size() >= kMaxCachedProfiles)
      by_key_.clear();  // rare, and refilled in milliseconds
    by_key_[key] = std::move(filters);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, SharedFilters> by_key_;
};

// Everything that the programs depend on, each part with its length in front: no two profiles share
// a key.
class KeyWriter {
 public:
  void Text(const std::string& text) { key_ += std::to_string(text.size()) + ":" + text; }
  void Number(uint64_t number) { key_ += std::to_string(number) + ";"; }
  void Optional(const std::optional<uint32_t>& number) {
    Number(number ? uint64_t{*number} + 1 : 0);
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(texts.size());
    for (const std::string& text : texts) Text(text);
  }
  std::string Take() { return std::move(key_); }

 private:
  std::string key_;
};

void WriteRule(KeyWriter& key, const oci::SeccompSyscall& rule) {
  key.Texts(rule.names);
  key.Text(rule.action);
  key.Optional(rule.errno_ret);
  key.Number(rule.args.size());
  for (const oci::SeccompArg& arg : rule.args) {
    key.Number(arg.index);
    key.Number(arg.value);
    key.Number(arg.value_two);
    key.Text(arg.op);
  }
  for (const auto* list :
       {&rule.includes_caps, &rule.excludes_caps, &rule.includes_arches, &rule.excludes_arches})
    key.Texts(*list);
  key.Text(rule.includes_min_kernel);
  key.Text(rule.excludes_min_kernel);
}

std::string KeyOf(const oci::LinuxSeccomp& profile, const std::vector<std::string>& capabilities) {
  KeyWriter key;
  const std::set<std::string> sorted(capabilities.begin(), capabilities.end());
  key.Texts({sorted.begin(), sorted.end()});
  key.Text(profile.default_action);
  key.Optional(profile.default_errno_ret);
  key.Texts(profile.architectures);
  key.Texts(profile.flags);
  key.Number(profile.listener_path.empty() ? 0 : 1);
  key.Number(profile.syscalls.size());
  for (const oci::SeccompSyscall& rule : profile.syscalls) WriteRule(key, rule);
  return key.Take();
}

Result<SharedFilters> BuildDefault() {
  auto filters = std::make_shared<FilterSet>();
  ASSIGN_OR_RETURN(filters->agent, BuildAgentProgram());
  filters->process = BuildProcessProgram();
  return SharedFilters(std::move(filters));
}

Result<SharedFilters> BuildCustom(const oci::LinuxSeccomp& profile,
                                  const std::vector<std::string>& capabilities) {
  auto filters = std::make_shared<FilterSet>();
  ASSIGN_OR_RETURN(filters->process_flags, LoadFlags(profile));
  ASSIGN_OR_RETURN(filters->process, CompileProfile(profile, SurroundingsHere(capabilities)));
  ASSIGN_OR_RETURN(filters->agent, BuildHostGuardProgram());
  return SharedFilters(std::move(filters));
}

}  // namespace

Result<SharedFilters> DefaultFilters() {
  static const Result<SharedFilters> filters = BuildDefault();
  return filters;
}

Result<SharedFilters> CompileFilters(const oci::LinuxSeccomp& profile,
                                     const std::vector<std::string>& capabilities) {
  static FilterCache cache;
  const std::string key = KeyOf(profile, capabilities);
  if (SharedFilters found = cache.Find(key)) return found;
  ASSIGN_OR_RETURN(SharedFilters filters, BuildCustom(profile, capabilities));
  cache.Keep(key, filters);
  return filters;
}

}  // namespace hutch::seccomp
