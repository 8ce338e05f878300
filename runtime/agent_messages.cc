#include "runtime/agent_messages.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "runtime/child_plan.h"

namespace hutch::runtime {
namespace {

struct RlimitRow {
  const char* name;
  uint32_t number;
};
constexpr RlimitRow kRlimits[] = {
    {"RLIMIT_AS", RLIMIT_AS},
    {"RLIMIT_CORE", RLIMIT_CORE},
    {"RLIMIT_CPU", RLIMIT_CPU},
    {"RLIMIT_DATA", RLIMIT_DATA},
    {"RLIMIT_FSIZE", RLIMIT_FSIZE},
    {"RLIMIT_LOCKS", RLIMIT_LOCKS},
    {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK},
    {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE},
    {"RLIMIT_NICE", RLIMIT_NICE},
    {"RLIMIT_NOFILE", RLIMIT_NOFILE},
    {"RLIMIT_NPROC", RLIMIT_NPROC},
    {"RLIMIT_RSS", RLIMIT_RSS},
    {"RLIMIT_RTPRIO", RLIMIT_RTPRIO},
    {"RLIMIT_RTTIME", RLIMIT_RTTIME},
    {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING},
    {"RLIMIT_STACK", RLIMIT_STACK},
};

Error BadMessage(const char* why) {
  return Error{.code = Code::kInvalidArgument, .what = std::string("agent: ") + why};
}

template <class Message>
bool Read(std::string_view bytes, Message* message) {
  if (bytes.size() != sizeof *message) return false;
  std::memcpy(message, bytes.data(), sizeof *message);
  return true;
}

Result<AgentReply> ParseReady(std::string_view bytes, AgentReply reply) {
  ReadyMessage message;
  if (!Read(bytes, &message) || message.note_count > kMaxNotes)
    return BadMessage("malformed ready");
  reply.notes.assign(message.notes, message.notes + message.note_count);
  return reply;
}

Result<AgentReply> ParseFailed(std::string_view bytes, AgentReply reply) {
  FailedMessage message;
  if (!Read(bytes, &message) || message.step >= static_cast<uint32_t>(AgentStep::kCount) ||
      message.error <= 0 || message.error > 4095)
    return BadMessage("malformed failure");
  const char* step = kAgentStepNames[message.step];
  Error error = SysError(message.error, step);
  error.step = step;
  if (message.step == static_cast<uint32_t>(AgentStep::kMounts))
    error.what += " (mount " + std::to_string(message.detail) + ")";
  reply.error = std::move(error);
  return reply;
}

Result<AgentReply> ParseStartFailed(std::string_view bytes, AgentReply reply) {
  StartFailedMessage message;
  if (!Read(bytes, &message) || message.error <= 0 || message.error > 4095)
    return BadMessage("malformed start failure");
  Error error = SysError(message.error, "start process");
  error.step = "clone process";
  if (message.error == EAGAIN) {
    error.code = Code::kLimit;
    error.what = "the sandbox has as many processes as its limits.pids allows";
    error.hint = "end some of them, or create the sandbox with a higher limits.pids";
  }
  reply.error = std::move(error);
  return reply;
}

Result<AgentReply> ParseExited(std::string_view bytes, AgentReply reply) {
  ExitedMessage message;
  if (!Read(bytes, &message) || message.user_us < 0 || message.system_us < 0 ||
      message.max_rss_kib < 0 || message.in_blocks < 0 || message.out_blocks < 0)
    return BadMessage("malformed exit");
  reply.wait_status = message.wait_status;
  reply.usage.ru_utime = {message.user_us / 1000000, message.user_us % 1000000};
  reply.usage.ru_stime = {message.system_us / 1000000, message.system_us % 1000000};
  reply.usage.ru_maxrss = message.max_rss_kib;
  reply.usage.ru_inblock = message.in_blocks;
  reply.usage.ru_oublock = message.out_blocks;
  return reply;
}

Result<AgentReply> ParseStarted(std::string_view bytes, AgentReply reply) {
  StartedMessage message;
  if (!Read(bytes, &message) || message.pid <= 0) return BadMessage("malformed start");
  reply.pid = message.pid;
  for (const int kept : message.kept) {
    if (kept < -1) return BadMessage("malformed start");
    reply.kept.push_back(kept);
  }
  return reply;
}

Result<AgentReply> ParseHello(std::string_view bytes, AgentReply reply) {
  HelloMessage message;
  if (!Read(bytes, &message) || message.process_count > kMaxAgentProcesses)
    return BadMessage("malformed hello");
  return reply;
}

Result<AgentReply> ParseBlank(std::string_view bytes, AgentReply reply) {
  if (bytes.size() != sizeof(BlankMessage)) return BadMessage("malformed blank");
  return reply;
}

struct ReplyRow {
  AgentMessage type;
  Result<AgentReply> (*parse)(std::string_view, AgentReply);
};
constexpr ReplyRow kReplies[] = {
    {AgentMessage::kBlank, ParseBlank},     {AgentMessage::kReady, ParseReady},
    {AgentMessage::kFailed, ParseFailed},   {AgentMessage::kHello, ParseHello},
    {AgentMessage::kStarted, ParseStarted}, {AgentMessage::kStartFailed, ParseStartFailed},
    {AgentMessage::kExited, ParseExited},
};

template <class Item>
void AppendBytes(std::string& out, const Item* items, size_t count) {
  out.append(reinterpret_cast<const char*>(items), count * sizeof(Item));
}

}  // namespace

Result<AgentReply> ParseAgentReply(std::string_view bytes) {
  AgentHeader header;
  if (bytes.size() < sizeof header) return BadMessage("short message");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kAgentMagic || header.version != kAgentVersion || header.size != bytes.size())
    return BadMessage("malformed header");
  for (const ReplyRow& row : kReplies)
    if (row.type == header.type)
      return row.parse(bytes, AgentReply{.type = header.type, .process = header.process});
  return BadMessage("unknown message");
}

Error StartReportError(uint32_t step, int sys, const oci::ProcessSpec& spec) {
  const bool known = step < static_cast<uint32_t>(ProcessStep::kCount);
  const char* name = known ? kProcessStepNames[step] : "process";
  const std::string command = spec.args.empty() ? "" : spec.args[0];
  Error error = SysError(sys, name);
  error.step = name;
  if (step == static_cast<uint32_t>(ProcessStep::kExec)) {
    const bool missing = sys == ENOENT || sys == ENOTDIR;
    error.code = missing        ? Code::kCommandNotFound
                 : sys == E2BIG ? Code::kTooLarge
                                : Code::kCommandNotExecutable;
    error.what = "\"" + command +
                 "\": " + (missing ? "no such command in the sandbox" : strerrordesc_np(sys));
    error.field = "command";
    if (missing && command.find('/') != std::string::npos)
      error.hint = "the file, or the interpreter it names, does not exist";
  } else if (step == static_cast<uint32_t>(ProcessStep::kWorkdir)) {
    error.code = sys == EACCES ? Code::kForbidden : Code::kInvalidArgument;
    error.what = "workdir " + spec.cwd + ": " + strerrordesc_np(sys);
    error.field = "workdir";
  }
  return error;
}

Result<uint32_t> RlimitNumber(const std::string& name) {
  for (const RlimitRow& row : kRlimits)
    if (name == row.name) return row.number;
  return Error{.code = Code::kInvalidArgument, .what = "unknown rlimit \"" + name + "\""};
}

const char* RlimitName(uint32_t number) {
  for (const RlimitRow& row : kRlimits)
    if (number == row.number) return row.name;
  return "?";
}

std::string NoteText(const RlimitNote& note) {
  const std::string wanted =
      note.wanted == RLIM64_INFINITY ? "unlimited" : std::to_string(note.wanted);
  return std::string("rlimit ") + RlimitName(note.resource) + " hard " + wanted + " lowered to " +
         std::to_string(note.applied);
}

Result<std::string> PrintPlan(const oci::Spec& spec, const rootfs::MountPlan& mounts,
                              const seccomp::FilterSet& filters) {
  PlanMessage message{};
  message.flags = (spec.process.no_new_privileges ? kPlanNoNewPrivileges : 0u) |
                  (spec.root.readonly ? kPlanReadonlyRoot : 0u) |
                  (mounts.default_proc ? kPlanDefaultProc : 0u) |
                  (mounts.live_proc ? kPlanLiveProc : 0u);
  if (spec.process.rlimits.size() > std::size(message.rlimits))
    return Error{.code = Code::kInvalidArgument, .what = "more than 16 rlimits"};
  for (const oci::Rlimit& limit : spec.process.rlimits) {
    ASSIGN_OR_RETURN(const uint32_t number, RlimitNumber(limit.type));
    message.rlimits[message.rlimit_count++] = {number, 0, limit.soft, limit.hard};
  }
  message.mount_count = static_cast<uint32_t>(mounts.ops.size());
  message.agent_filter_count = static_cast<uint32_t>(filters.agent.size());
  message.process_filter_count = static_cast<uint32_t>(filters.process.size());
  message.process_filter_flags = filters.process_flags;
  message.strings_size = static_cast<uint32_t>(mounts.strings.size());
  const size_t size = sizeof message + mounts.ops.size() * sizeof(rootfs::MountOp) +
                      (filters.agent.size() + filters.process.size()) * sizeof(sock_filter) +
                      mounts.strings.size();
  if (size > kMaxPlanBytes || mounts.strings.size() > kMaxPlanStrings)
    return Error{.code = Code::kTooLarge, .what = "the sandbox's plan is too large"};
  message.header = {kAgentMagic, kAgentVersion, AgentMessage::kPlan, static_cast<uint32_t>(size),
                    0};
  std::string bytes;
  bytes.reserve(size);
  AppendBytes(bytes, &message, 1);
  AppendBytes(bytes, mounts.ops.data(), mounts.ops.size());
  AppendBytes(bytes, filters.agent.data(), filters.agent.size());
  AppendBytes(bytes, filters.process.data(), filters.process.size());
  bytes += mounts.strings;
  return bytes;
}

Result<std::string> PrintStart(uint32_t process, const oci::ProcessSpec& spec,
                               const StartOptions& options) {
  if (spec.args.empty())
    return Error{.code = Code::kInvalidArgument, .what = "command is empty", .field = "command"};
  CHECK(options.kept_count <= kMaxKeptFds);
  if (spec.user.additional_gids.size() > kMaxGroups)
    return Error{.code = Code::kInvalidArgument, .what = "more than 32 supplementary groups"};
  StartMessage message{};
  message.uid = spec.user.uid;
  message.gid = spec.user.gid;
  message.umask = spec.user.umask.value_or(022);
  message.group_count = static_cast<uint32_t>(spec.user.additional_gids.size());
  std::copy(spec.user.additional_gids.begin(), spec.user.additional_gids.end(), message.groups);
  message.arg_count = static_cast<uint32_t>(spec.args.size());
  message.env_count = static_cast<uint32_t>(spec.env.size());
  message.flags = options.flags;
  message.kept_count = options.kept_count;
  message.rows = options.rows;
  message.columns = options.columns;
  for (const uint32_t cpu : spec.cpus)
    if (cpu < kCpuMaskWords * 64) message.cpu_mask[cpu / 64] |= uint64_t{1} << cpu % 64;
  std::string bytes(reinterpret_cast<const char*>(&message), sizeof message);
  bytes.append(spec.cwd).push_back('\0');
  for (const auto* list : {&spec.args, &spec.env})
    for (const std::string& text : *list) bytes.append(text).push_back('\0');
  if (bytes.size() > kMaxStartBytes || spec.args.size() + spec.env.size() > kMaxArgs)
    return Error{.code = Code::kTooLarge,
                 .what = "command, environment and workdir together exceed " +
                         std::to_string(kMaxStartBytes) + " bytes or " + std::to_string(kMaxArgs) +
                         " entries",
                 .field = "command",
                 .hint = "write large data to stdin or to a file"};
  message.header = {kAgentMagic, kAgentVersion, AgentMessage::kStart,
                    static_cast<uint32_t>(bytes.size()), process};
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

}  // namespace hutch::runtime
