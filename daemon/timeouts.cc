#include "daemon/timeouts.h"

#include <algorithm>

#include "daemon/create_request.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kMaxSeconds = uint64_t{10} * 365 * 86400;
constexpr size_t kMaxNames = 16;

struct ActivityRow {
  const char* name;
  Activity activity;
};
constexpr ActivityRow kActivities[] = {
    {"call", Activity::kCall},
    {"process", Activity::kProcess},
    {"heartbeat", Activity::kRenewal},
    {"port", Activity::kPort},
};

constexpr const char* kExpiries[] = {"destroy", "pause", "stop"};
const char* ExpiryName(OnExpiry on_expiry) { return kExpiries[static_cast<size_t>(on_expiry)]; }

Status ParseActivity(const std::vector<std::string>& names, uint8_t* activity) {
  *activity = 0;
  for (const std::string& name : names) {
    const auto row = std::find_if(std::begin(kActivities), std::end(kActivities),
                                  [&](const ActivityRow& one) { return name == one.name; });
    if (row == std::end(kActivities))
      return Error{.code = Code::kInvalidArgument,
                   .what = "must be a list of call, process, heartbeat, port",
                   .field = "timeouts.activity"};
    *activity = static_cast<uint8_t>(*activity | static_cast<uint8_t>(row->activity));
  }
  return OkStatus();
}

Status ParseOnExpiry(const std::string& text, OnExpiry* on_expiry) {
  for (size_t i = 0; i < std::size(kExpiries); ++i) {
    if (text != kExpiries[i]) continue;
    *on_expiry = static_cast<OnExpiry>(i);
    return OkStatus();
  }
  return Error{.code = Code::kInvalidArgument,
               .what = "must be \"destroy\", \"pause\" or \"stop\"",
               .field = "timeouts.on_expiry"};
}

}  // namespace

Status ParseTimeouts(const oci::Json& json, Timeouts* timeouts) {
  std::string on_expiry = ExpiryName(timeouts->on_expiry);
  std::vector<std::string> names;
  oci::ObjectReader reader(json, "timeouts");
  const bool has_names = reader.Member("activity") != nullptr;
  reader.Uint("idle_seconds", &timeouts->idle_seconds, 0, kMaxSeconds)
      .Uint("lifetime_seconds", &timeouts->lifetime_seconds, 0, kMaxSeconds)
      .String("on_expiry", &on_expiry, 256)
      .Strings("activity", &names, kMaxNames);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(ParseOnExpiry(on_expiry, &timeouts->on_expiry));
  return has_names ? ParseActivity(names, &timeouts->activity) : OkStatus();
}

Status KeepCeilings(const Amounts& ceilings, Timeouts* timeouts) {
  ASSIGN_OR_RETURN(
      timeouts->idle_seconds,
      WithinCeiling(timeouts->idle_seconds, ceilings.idle_seconds, "timeouts.idle_seconds"));
  ASSIGN_OR_RETURN(timeouts->lifetime_seconds,
                   WithinCeiling(timeouts->lifetime_seconds, ceilings.lifetime_seconds,
                                 "timeouts.lifetime_seconds"));
  return OkStatus();
}

oci::Json TimeoutsJson(const Timeouts& timeouts) {
  oci::Json activity = oci::Json::array();
  for (const ActivityRow& row : kActivities)
    if (timeouts.Counts(row.activity)) activity.push_back(row.name);
  return {{"idle_seconds", timeouts.idle_seconds},
          {"lifetime_seconds", timeouts.lifetime_seconds},
          {"on_expiry", ExpiryName(timeouts.on_expiry)},
          {"activity", std::move(activity)}};
}

void Deadlines::Set(MoveCause cause, std::optional<SteadyTime> at, std::chrono::seconds period) {
  for (Row& row : rows_) {
    if (row.cause != cause || row.at == at) continue;
    row.at = at;
    row.period = period;
    row.warned = false;
  }
}

Deadlines::Look Deadlines::LookAt(SteadyTime now, std::chrono::seconds ahead) {
  using std::chrono::seconds;
  Look look;
  for (Row& row : rows_) {
    if (!row.at) continue;
    if (*row.at <= now) {
      if (!look.expired) look.expired = row.cause;
      continue;
    }
    SteadyTime wake = *row.at;
    if (ahead > seconds(0) && !row.warned) {
      const SteadyTime warn_at =
          *row.at - std::min<SteadyTime::duration>(ahead, SteadyTime::duration(row.period) / 2);
      if (warn_at <= now) {
        row.warned = true;
        const auto left = std::chrono::ceil<seconds>(*row.at - now);
        look.warnings.push_back({row.cause, static_cast<uint64_t>(left.count())});
      } else {
        wake = warn_at;
      }
    }
    if (!look.next || wake < *look.next) look.next = wake;
  }
  return look;
}

}  // namespace hutch::daemon
