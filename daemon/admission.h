// Whether the host can promise one sandbox more: what living ones were promised, against what the
// host has times an overcommit for each amount; and how the host fares at the moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/create_request.h"
#include "daemon/metrics.h"
#include "daemon/timers.h"
#include "oci/json.h"

namespace hutch::daemon {

// Also of a host, where 0 is "not known": nothing is refused for it.
struct Promise {
  uint64_t memory_bytes = 0, cpu_millis = 0, pids = 0, disk_bytes = 0, id_ranges = 0;

  Promise& operator+=(const Promise& other);
  Promise& operator-=(const Promise& other);  // of what was added before
};
// Files on a sandbox's scratch file system are in its memory: its disk is never more than that.
Promise PromiseOf(const SandboxFields& fields);

// How many times the host's amounts are given out.
struct Overcommit {
  double memory = 1, cpus = 1, pids = 1, disk = 1;
};
Overcommit OvercommitOf(const Config& config);

// kLimit, with the field, for what can never be: more than the host has, or than is ever given
// out. kUnavailable for what is not left now; both say how much is missing.
Status CheckFits(const Promise& asked, const Promise& promised, const Promise& host,
                 const Overcommit& overcommit);
oci::Json PromiseJson(const Promise& promise);

// Of the host, at the moment. Nothing where the kernel does not tell.
struct Strain {
  std::optional<double> memory_some_avg10 = {};  // percent of ten seconds
  std::optional<uint64_t> available_bytes = {}, total_bytes = {};
};
// Of the texts of /proc/pressure/memory and /proc/meminfo.
Strain ParseStrain(std::string_view pressure, std::string_view meminfo);
// kUnavailable with the numbers, below limits.memory_reserve_bytes, or past
// limits.memory_pressure_percent while less than a tenth of the memory is available: a sandbox
// that fights its own limit is pressure as well, and must not hold up the others. 0 is no bound.
Status CheckStrain(const Strain& strain, const Config& config);

// The sum, and the host's strain, which is read once a second at most. On the loop's thread.
class Admission {
 public:
  Admission(const Config& config, const Promise& host) : config_(config), host_(host) {}

  Status Check(const SandboxFields& fields);
  // The same, neither counted nor said why not; as if `without` were promised no more.
  bool HasRoom(const SandboxFields& fields, const Promise& without = {}) const;
  bool Strained() { return !CheckStrain(Now(), config_).has_value(); }
  void Add(const SandboxFields& fields) { promised_ += PromiseOf(fields); }
  void Remove(const SandboxFields& fields) { promised_ -= PromiseOf(fields); }

  const Promise& promised() const { return promised_; }
  oci::Json ToJson();  // for GET /v1/info
  // Refusals by "never_fits", "not_now", "pressure", "owner", "sandboxes".
  CountBy& refused() { return refused_; }
  const CountBy& refused() const { return refused_; }

 private:
  const Strain& Now();

  const Config& config_;
  Promise host_, promised_;
  Strain strain_;
  std::optional<SteadyTime> strain_at_;
  CountBy refused_ = {
      {"never_fits", 0}, {"not_now", 0}, {"owner", 0}, {"pressure", 0}, {"sandboxes", 0}};
};

}  // namespace hutch::daemon
