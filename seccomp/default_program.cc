#include "seccomp/default_program.h"

#include <asm/ioctls.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <optional>

#include "seccomp/default_profile.h"
#include "seccomp/program_builder.h"
#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

using Label = ProgramBuilder::Label;

constexpr uint32_t kAllowCall = SECCOMP_RET_ALLOW;
constexpr uint32_t kKill = SECCOMP_RET_KILL_PROCESS;
constexpr uint32_t Fail(uint32_t sys) { return SECCOMP_RET_ERRNO | sys; }

// CLONE_NEWTIME is missing because clone reads those bits as the exit signal.
constexpr uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
// TIOCSTI and TIOCLINUX type into the terminal; TIOCSETD loads line discipline modules.
constexpr uint32_t kDeniedIoctls[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
// PER_LINUX, PER_LINUX32, each with UNAME26, and "only tell me".
constexpr uint32_t kPersonalities[] = {0, 0x0008, 0x20000, 0x20008, 0xffffffff};
// Others load protocol modules (SCTP, DCCP, L2TP, MPTCP, SMC) on behalf of anybody who asks.
constexpr uint32_t kInetProtocols[] = {IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP,
                                       IPPROTO_ICMPV6};

// Goes to `match` when A is one of the values.
Label AnyOf(ProgramBuilder& b, std::span<const uint32_t> values, Label match, Label otherwise) {
  Label next = otherwise;
  for (size_t i = values.size(); i-- > 0;) next = b.Branch(BPF_JEQ, values[i], match, next);
  return next;
}

// The kernel takes family and protocol as int: the upper halves of the registers do not count.
Label SocketCheck(ProgramBuilder& b) {
  const Label allow = b.Return(kAllowCall);
  const Label no_protocol = b.Return(Fail(EPROTONOSUPPORT));
  const Label no_family = b.Return(Fail(EAFNOSUPPORT));
  const Label route = b.Load(ArgLowOffset(2), b.Branch(BPF_JEQ, NETLINK_ROUTE, allow, no_protocol));
  const Label inet = b.Load(ArgLowOffset(2), AnyOf(b, kInetProtocols, allow, no_protocol));
  Label family = b.Branch(BPF_JEQ, AF_NETLINK, route, no_family);
  family = b.Branch(BPF_JEQ, AF_INET6, inet, family);
  family = b.Branch(BPF_JEQ, AF_INET, inet, family);
  family = b.Branch(BPF_JEQ, AF_UNIX, allow, family);
  return b.Load(ArgLowOffset(0), family);
}

Label CloneCheck(ProgramBuilder& b) {
  const Label allow = b.Return(kAllowCall);
  const Label refuse = b.Return(Fail(EPERM));
  return b.Load(ArgLowOffset(0), b.Branch(BPF_JSET, kNewNamespaces, refuse, allow));
}

Label IoctlCheck(ProgramBuilder& b) {
  const Label allow = b.Return(kAllowCall);
  const Label refuse = b.Return(Fail(EPERM));
  return b.Load(ArgLowOffset(1), AnyOf(b, kDeniedIoctls, refuse, allow));
}

Label PersonalityCheck(ProgramBuilder& b) {
  const Label allow = b.Return(kAllowCall);
  const Label refuse = b.Return(Fail(EPERM));
  return b.Load(ArgLowOffset(0), AnyOf(b, kPersonalities, allow, refuse));
}

// What happens to a range of numbers: a plain action, or an argument check.
struct Outcome {
  uint32_t action = 0;
  Verdict check = Verdict::kAllow;  // kAllow: no check, `action` holds
  bool operator==(const Outcome&) const = default;
};

struct Range {  // from `first` to the next range's first, or to 2^32
  uint32_t first;
  Outcome outcome;
};

Outcome OutcomeOf(const SyscallGroup& group) {
  switch (group.verdict) {
    case Verdict::kAllow:
    case Verdict::kAgentOnly:
      return {kAllowCall};
    case Verdict::kEperm:
      return {Fail(EPERM)};
    case Verdict::kEnosys:
      return {Fail(ENOSYS)};
    default:
      return {.check = group.verdict};
  }
}

// Neighbours with one outcome become one range. x32 numbers are killed; -1 is no x32 number but
// what a tracer writes to skip a call.
std::vector<Range> MergeRanges(const std::map<uint32_t, Outcome>& calls, Outcome otherwise) {
  std::vector<Range> ranges{{0, otherwise}};
  const auto start = [&ranges](uint32_t first, Outcome outcome) {
    if (ranges.back().first == first) ranges.pop_back();
    if (ranges.empty() || ranges.back().outcome != outcome) ranges.push_back({first, outcome});
  };
  for (const auto& [number, outcome] : calls) {
    start(number, outcome);
    start(number + 1, otherwise);
  }
  start(kX32Bit, {kKill});
  start(UINT32_MAX, otherwise);
  return ranges;
}

class RangeSearch {
 public:
  RangeSearch(ProgramBuilder& builder, std::span<const Range> ranges)
      : b_(builder), ranges_(ranges) {}

  // A binary search over ranges[begin, end), for the number in A.
  Label Write(size_t begin, size_t end) {
    if (end - begin == 1) return Leaf(ranges_[begin].outcome);
    const size_t middle = begin + (end - begin) / 2;
    const Label upper = Write(middle, end);
    const Label lower = Write(begin, middle);
    return b_.Branch(BPF_JGE, ranges_[middle].first, upper, lower);
  }

 private:
  Label Leaf(const Outcome& outcome) {
    if (outcome.check == Verdict::kAllow) return b_.Return(outcome.action);
    for (const auto& [verdict, label] : checks_)  // socket and socketpair share one
      if (verdict == outcome.check) return label;
    const Label label = Check(outcome.check);
    checks_.emplace_back(outcome.check, label);
    return label;
  }
  Label Check(Verdict verdict) {
    switch (verdict) {
      case Verdict::kClone:
        return CloneCheck(b_);
      case Verdict::kSocket:
        return SocketCheck(b_);
      case Verdict::kIoctl:
        return IoctlCheck(b_);
      default:
        CHECK(verdict == Verdict::kPersonality);
        return PersonalityCheck(b_);
    }
  }
  ProgramBuilder& b_;
  std::span<const Range> ranges_;
  std::vector<std::pair<Verdict, Label>> checks_;
};

Program BuildProgram(const std::map<uint32_t, Outcome>& calls, Outcome otherwise) {
  const std::vector<Range> ranges = MergeRanges(calls, otherwise);
  ProgramBuilder b;
  const Label foreign = b.Return(kKill);
  const Label search = RangeSearch(b, ranges).Write(0, ranges.size());
  const Label number = b.Load(NumberOffset(), search);
  const Label arch = b.Branch(BPF_JEQ, kNativeArch, number, foreign);
  return b.Finish(b.Load(ArchOffset(), arch));
}

}  // namespace

Result<Program> BuildAgentProgram() {
  ASSIGN_OR_RETURN(const auto profile, ResolveDefaultProfile());
  std::map<uint32_t, Outcome> calls;
  for (const auto& [number, group] : profile) calls.emplace(number, OutcomeOf(group));
  return BuildProgram(calls, {Fail(ENOSYS)});
}

Result<Program> BuildHostGuardProgram() {
  ASSIGN_OR_RETURN(const auto profile, ResolveDefaultProfile());
  std::map<uint32_t, Outcome> calls;
  for (const auto& [number, group] : profile)
    if (group.reach == Reach::kHost) calls.emplace(number, OutcomeOf(group));
  return BuildProgram(calls, {kAllowCall});
}

Program BuildProcessProgram() {
  ProgramBuilder b;
  const Label foreign = b.Return(kKill);
  const Label allow = b.Return(kAllowCall);
  const Label clone3 = b.Branch(BPF_JEQ, SYS_clone3, b.Return(Fail(ENOSYS)), allow);
  const Label number = b.Load(NumberOffset(), clone3);
  return b.Finish(b.Load(ArchOffset(), b.Branch(BPF_JEQ, kNativeArch, number, foreign)));
}

}  // namespace hutch::seccomp
