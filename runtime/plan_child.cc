// Reading plans and start requests, in the agent and in the fuzzers. No heap.
#include "runtime/child_plan.h"

#include <cerrno>
#include <cstring>

namespace hutch::runtime {
namespace {

bool HeaderIs(const AgentHeader& header, AgentMessage type, size_t size) noexcept {
  return header.magic == kAgentMagic && header.version == kAgentVersion && header.type == type &&
         header.size == size;
}

// Whether `pairs` key/value strings fit in the string area from `at` on; its last byte is a NUL.
bool OptionsFit(const char* strings, size_t size, size_t at, size_t pairs) noexcept {
  for (size_t ends = 0; ends < pairs * 2; ++at) {
    if (at >= size) return false;
    if (strings[at] == '\0') ++ends;
  }
  return true;
}

bool MountFits(const rootfs::MountOp& op, const char* strings, size_t size) noexcept {
  return op.target < size && op.source < size && op.kind <= rootfs::MountOpKind::kLast &&
         OptionsFit(strings, size, op.options_at, op.options);
}

// Takes the next NUL-terminated string off [*at, end); nullptr when there is none.
char* TakeString(char** at, char* end) noexcept {
  char* start = *at;
  if (start >= end) return nullptr;
  auto* nul = static_cast<char*>(std::memchr(start, '\0', static_cast<size_t>(end - start)));
  if (nul == nullptr) return nullptr;
  *at = nul + 1;
  return start;
}

}  // namespace

int ParsePlan(const void* buffer, size_t size, ChildPlan* plan) noexcept {
  if (size < sizeof(PlanMessage)) return EPROTO;
  const auto* message = static_cast<const PlanMessage*>(buffer);
  if (!HeaderIs(message->header, AgentMessage::kPlan, size)) return EPROTO;
  if (message->rlimit_count > 16 || message->mount_count > rootfs::kMaxMountOps ||
      message->agent_filter_count > kMaxFilterInstructions ||
      message->process_filter_count > kMaxFilterInstructions || message->agent_filter_count == 0 ||
      message->process_filter_count == 0 || message->strings_size == 0 ||
      message->strings_size > kMaxPlanStrings)
    return EPROTO;
  const size_t mounts_bytes = message->mount_count * sizeof(rootfs::MountOp);
  const size_t agent_bytes = message->agent_filter_count * sizeof(sock_filter);
  const size_t process_bytes = message->process_filter_count * sizeof(sock_filter);
  if (size !=
      sizeof(PlanMessage) + mounts_bytes + agent_bytes + process_bytes + message->strings_size)
    return EPROTO;
  const char* at = static_cast<const char*>(buffer) + sizeof(PlanMessage);
  plan->message = message;
  plan->mounts = reinterpret_cast<const rootfs::MountOp*>(at);
  plan->agent_filter = reinterpret_cast<const sock_filter*>(at += mounts_bytes);
  plan->process_filter = reinterpret_cast<const sock_filter*>(at += agent_bytes);
  plan->strings = at += process_bytes;
  if (plan->strings[message->strings_size - 1] != '\0') return EPROTO;
  for (size_t i = 0; i < message->mount_count; ++i)
    if (!MountFits(plan->mounts[i], plan->strings, message->strings_size)) return EPROTO;
  return 0;
}

int ParseStart(char* buffer, size_t size, char** table, ChildStart* start) noexcept {
  if (size < sizeof(StartMessage) || size > kMaxStartBytes) return EPROTO;
  const auto* message = reinterpret_cast<const StartMessage*>(buffer);
  if (!HeaderIs(message->header, AgentMessage::kStart, size)) return EPROTO;
  if (message->group_count > kMaxGroups || message->kept_count > kMaxKeptFds ||
      message->arg_count == 0 || message->arg_count > kMaxArgs ||
      message->env_count > kMaxArgs - message->arg_count)
    return EPROTO;
  char* at = buffer + sizeof(StartMessage);
  char* end = buffer + size;
  start->message = message;
  start->workdir = TakeString(&at, end);
  if (start->workdir == nullptr) return EPROTO;
  start->argv = table;
  start->envp = table + message->arg_count + 1;
  for (size_t i = 0; i < message->arg_count + message->env_count; ++i) {
    char* text = TakeString(&at, end);
    if (text == nullptr) return EPROTO;
    (i < message->arg_count ? start->argv + i : start->envp + (i - message->arg_count))[0] = text;
  }
  start->argv[message->arg_count] = nullptr;
  start->envp[message->env_count] = nullptr;
  return at == end ? 0 : EPROTO;
}

}  // namespace hutch::runtime
