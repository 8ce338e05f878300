#include "daemon/admission.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/pressure.h"
#include "daemon/loop.h"
#include "daemon/message.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxProcBytes = 64 * 1024;
constexpr Milliseconds kStrainFresh{1'000};
constexpr uint64_t kLowShare = 10;  // a tenth of the memory

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}
std::string Count(uint64_t value) { return std::to_string(value); }
std::string Cpus(uint64_t millis) { return Number(static_cast<double>(millis) / 1000); }

enum class Alone { kWholeHost, kWhatIsGivenOut };  // the most that one sandbox may get

struct Row {
  const char* noun;   // "4GiB of memory"
  const char* field;  // of a request
  uint64_t Promise::*amount;
  double Overcommit::*overcommit;  // nullptr: none is possible
  Alone alone;
  std::string (*show)(uint64_t);
};
constexpr Row kRows[] = {
    {"of memory", "limits.memory_bytes", &Promise::memory_bytes, &Overcommit::memory,
     Alone::kWholeHost, FormatSize},
    {"CPUs", "limits.cpus", &Promise::cpu_millis, &Overcommit::cpus, Alone::kWholeHost, Cpus},
    {"processes", "limits.pids", &Promise::pids, &Overcommit::pids, Alone::kWhatIsGivenOut, Count},
    {"of disk", "limits.disk_bytes", &Promise::disk_bytes, &Overcommit::disk,
     Alone::kWhatIsGivenOut, FormatSize},
    {"ranges of host ids", "", &Promise::id_ranges, nullptr, Alone::kWhatIsGivenOut, Count},
};

uint64_t Times(uint64_t amount, double factor) {
  const double product = static_cast<double>(amount) * factor;
  return product >= 0x1p63 ? uint64_t{1} << 63 : static_cast<uint64_t>(product);
}

Status CheckRow(const Row& row, const Promise& asked, const Promise& promised, const Promise& host,
                const Overcommit& overcommit) {
  const uint64_t has = host.*row.amount, wants = asked.*row.amount, given = promised.*row.amount;
  if (has == 0) return OkStatus();
  const double factor = row.overcommit == nullptr ? 1 : overcommit.*row.overcommit;
  const uint64_t ceiling = Times(has, factor);
  const uint64_t alone = row.alone == Alone::kWholeHost ? std::min(has, ceiling) : ceiling;
  if (wants > alone)
    return Error{
        .code = Code::kLimit,
        .what = "the host has " + row.show(has) + " " + row.noun + ", of which " + row.show(alone) +
                " at most are given to one sandbox: " + row.show(wants - alone) + " are missing",
        .field = row.field};
  if (given <= ceiling && wants <= ceiling - given) return OkStatus();
  const uint64_t left = given < ceiling ? ceiling - given : 0;
  return Error{.code = Code::kUnavailable,
               .step = kAdmissionStep,
               .what = row.show(wants) + " " + row.noun + " are asked for and " + row.show(left) +
                       " left, of " + row.show(ceiling) +
                       " that are given out: " + row.show(wants - left) + " are missing",
               .field = row.field,
               .hint = "try again when other sandboxes have ended"};
}

std::string ReadProc(const char* path) {
  Result<std::string> text = ReadFile(path, kMaxProcBytes);
  return text.has_value() ? *std::move(text) : std::string();
}

}  // namespace

Promise& Promise::operator+=(const Promise& other) {
  for (const Row& row : kRows) this->*row.amount += other.*row.amount;
  return *this;
}
Promise& Promise::operator-=(const Promise& other) {
  for (const Row& row : kRows) {
    CHECK(this->*row.amount >= other.*row.amount);
    this->*row.amount -= other.*row.amount;
  }
  return *this;
}

Promise PromiseOf(const SandboxFields& fields) {
  return {.memory_bytes = fields.memory_bytes,
          .cpu_millis = static_cast<uint64_t>(std::llround(fields.cpus * 1000)),
          .pids = fields.pids,
          .disk_bytes = std::min(fields.disk_bytes, fields.memory_bytes),
          .id_ranges = 1};
}

Overcommit OvercommitOf(const Config& config) {
  return {.memory = config.memory_overcommit,
          .cpus = config.cpus_overcommit,
          .pids = config.pids_overcommit,
          .disk = config.disk_overcommit};
}

Status CheckFits(const Promise& asked, const Promise& promised, const Promise& host,
                 const Overcommit& overcommit) {
  for (const Row& row : kRows) RETURN_IF_ERROR(CheckRow(row, asked, promised, host, overcommit));
  return OkStatus();
}

oci::Json PromiseJson(const Promise& promise) {
  return {{"memory_bytes", promise.memory_bytes},
          {"cpus", static_cast<double>(promise.cpu_millis) / 1000},
          {"pids", promise.pids},
          {"disk_bytes", promise.disk_bytes},
          {"id_ranges", promise.id_ranges}};
}

Strain ParseStrain(std::string_view pressure, std::string_view meminfo) {
  Strain strain;
  if (const auto parsed = cgroups::ParsePressure(pressure))
    strain.memory_some_avg10 = parsed->some.avg10;
  struct Field {
    std::string_view name;
    std::optional<uint64_t> Strain::*value;
  };
  constexpr Field kFields[] = {{"MemTotal:", &Strain::total_bytes},
                               {"MemAvailable:", &Strain::available_bytes}};
  for (const std::string& line : Split(meminfo, '\n'))
    for (const Field& field : kFields) {
      if (!line.starts_with(field.name)) continue;
      const std::vector<std::string> words =
          Split(Trim(std::string_view(line).substr(field.name.size())), ' ');
      if (const auto kib = ParseUint(words.front(), UINT64_MAX / 1024))
        strain.*field.value = *kib * 1024;
    }
  return strain;
}

Status CheckStrain(const Strain& strain, const Config& config) {
  std::string what;
  const uint64_t low = strain.total_bytes.value_or(UINT64_MAX) / kLowShare;
  if (config.memory_pressure_percent > 0 && strain.available_bytes.value_or(0) < low &&
      strain.memory_some_avg10.value_or(0) > config.memory_pressure_percent)
    what = "the host is short of memory: tasks waited for it " + Number(*strain.memory_some_avg10) +
           " % of the last ten seconds, more than " + Number(config.memory_pressure_percent) +
           " %, and " + FormatSize(strain.available_bytes.value_or(0)) + " are available";
  if (config.memory_reserve_bytes > 0 &&
      strain.available_bytes.value_or(UINT64_MAX) < config.memory_reserve_bytes)
    what = "the host is short of memory: " + FormatSize(*strain.available_bytes) +
           " are available, less than the " + FormatSize(config.memory_reserve_bytes) +
           " that are held back";
  if (what.empty()) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .step = kAdmissionStep,
               .what = std::move(what),
               .hint = "try again when other sandboxes have ended"};
}

const Strain& Admission::Now() {
  if (strain_at_ && Loop::Now() - *strain_at_ < kStrainFresh) return strain_;
  strain_ = ParseStrain(ReadProc("/proc/pressure/memory"), ReadProc("/proc/meminfo"));
  strain_at_ = Loop::Now();
  return strain_;
}

Status Admission::Check(const SandboxFields& fields) {
  Status fits = CheckFits(PromiseOf(fields), promised_, host_, OvercommitOf(config_));
  if (!fits.has_value()) {
    ++refused_[fits.error().code == Code::kLimit ? "never_fits" : "not_now"];
    return fits;
  }
  Status calm = CheckStrain(Now(), config_);
  if (!calm.has_value()) ++refused_["pressure"];
  return calm;
}

bool Admission::HasRoom(const SandboxFields& fields, const Promise& without) const {
  Promise promised = promised_;
  promised -= without;
  return CheckFits(PromiseOf(fields), promised, host_, OvercommitOf(config_)).has_value();
}

oci::Json Admission::ToJson() {
  const Strain& strain = Now();
  const Overcommit overcommit = OvercommitOf(config_);
  return {{"host", PromiseJson(host_)},
          {"promised", PromiseJson(promised_)},
          {"overcommit",
           {{"memory", overcommit.memory},
            {"cpus", overcommit.cpus},
            {"pids", overcommit.pids},
            {"disk", overcommit.disk}}},
          {"memory_some_avg10",
           strain.memory_some_avg10 ? oci::Json(*strain.memory_some_avg10) : oci::Json()},
          {"memory_pressure_percent", config_.memory_pressure_percent},
          {"memory_available_bytes",
           strain.available_bytes ? oci::Json(*strain.available_bytes) : oci::Json()},
          {"memory_reserve_bytes", config_.memory_reserve_bytes},
          {"refused", refused_}};
}

}  // namespace hutch::daemon
