// pause, resume, stop, start, and wait for a sandbox.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Clock = std::chrono::steady_clock;

constexpr int kExitTimedOut = 124;        // as timeout(1) says it
constexpr double kMaxWaitSeconds = 3600;  // of one call

std::string TargetOf(const std::string& id) { return "/v1/sandboxes/" + EncodeSegment(id); }

Result<int> Show(Context& context, const Json& sandbox) {
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(sandbox));
  return 0;
}

// The calls are as long as one may be; the last one has what is left.
Result<Json> AskUntil(Context& context, const std::string& states,
                      const std::optional<Clock::time_point>& deadline) {
  for (;;) {
    double left = kMaxWaitSeconds;
    if (deadline)
      left = std::min(left, std::chrono::duration<double>(*deadline - Clock::now()).count());
    const auto seconds = static_cast<uint64_t>(std::max(left, 0.0) + 0.999);
    auto sandbox = context.client.Get(TargetOf(context.options.id) + "?wait=" + states +
                                      "&timeout_seconds=" + std::to_string(seconds));
    const bool again = !sandbox.has_value() && sandbox.error().code == Code::kPreconditionFailed &&
                       (!deadline || Clock::now() < *deadline);
    if (!again) return sandbox;
  }
}

}  // namespace

// 0: it is in a state that was asked for. 1: it ended otherwise. 124: the time is over.
Result<int> WaitForState(Context& context) {
  const Options& options = context.options;
  const std::string states = options.state.empty() ? "running" : options.state;
  std::optional<Clock::time_point> deadline;
  if (!options.timeout.empty()) {
    ASSIGN_OR_RETURN(const double seconds, ParseSeconds(options.timeout));
    if (seconds > 0)
      deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(std::min(seconds, 1e9)));
  }
  const Result<Json> sandbox = AskUntil(context, EncodeSegment(states), deadline);
  if (!sandbox.has_value()) {
    if (sandbox.error().code != Code::kPreconditionFailed) return sandbox.error();
    PrintError(sandbox.error(), options);
    return kExitTimedOut;
  }
  std::string state, cause;
  RETURN_IF_ERROR(oci::ObjectReader(*sandbox, "sandbox")
                      .String("state", &state)
                      .String("cause", &cause)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  RETURN_IF_ERROR(Show(context, *sandbox));
  const std::vector<std::string> wanted = Split(states, ',');
  if (std::find(wanted.begin(), wanted.end(), state) != wanted.end()) return 0;
  Note("sandbox " + Printable(options.id) + " is " + state + ": " + cause);
  return kExitFailed;
}

Result<int> RunPause(Context& context) {
  ASSIGN_OR_RETURN(const Json sandbox, context.client.Post(TargetOf(context.options.id) + "/pause",
                                                           {{"reclaim", context.options.reclaim}}));
  if (context.options.json || !context.options.reclaim) return Show(context, sandbox);
  uint64_t bytes = 0;
  RETURN_IF_ERROR(oci::ObjectReader(sandbox, "sandbox")
                      .Uint("reclaimed_bytes", &bytes)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  RETURN_IF_ERROR(Print("reclaimed " + FormatSize(bytes) + "\n"));
  return 0;
}

Result<int> RunResume(Context& context) {
  ASSIGN_OR_RETURN(const Json sandbox,
                   context.client.Post(TargetOf(context.options.id) + "/resume", Json::object()));
  return Show(context, sandbox);
}

Result<int> RunStop(Context& context) {
  Json body = Json::object();
  if (!context.options.timeout.empty()) {
    ASSIGN_OR_RETURN(const double seconds, ParseSeconds(context.options.timeout));
    body["timeout_seconds"] = static_cast<uint64_t>(std::ceil(seconds));
  }
  ASSIGN_OR_RETURN(const Json sandbox,
                   context.client.Post(TargetOf(context.options.id) + "/stop", body));
  return Show(context, sandbox);
}

Result<int> RunStart(Context& context) {
  ASSIGN_OR_RETURN(const Json sandbox,
                   context.client.Post(TargetOf(context.options.id) + "/start", Json::object()));
  return Show(context, sandbox);
}

}  // namespace hutch::tools
