#include "rootfs/unpack_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "base/file.h"
#include "base/text.h"
#include "oci/image_spec.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr int kReportFd = 3;
constexpr std::array<const char*, 4> kPlaces = {"/", "/../bin/", "/../libexec/hutch/",
                                                "/../../libexec/hutch/"};

Error Malformed() {
  return Error{.code = Code::kInvalidArgument, .what = "hutch-unpack: malformed report"};
}

Error ParseErrorLine(const std::string& line) {
  const size_t code_end = line.find(' ', 6);
  const std::string name = line.substr(6, code_end == std::string::npos ? code_end : code_end - 6);
  Error error{.code = Code::kKernel,
              .what = code_end == std::string::npos ? line : line.substr(code_end + 1)};
  for (const Code code :
       {Code::kInvalidArgument, Code::kTooLarge, Code::kCorrupt, Code::kNoSpace, Code::kInternal})
    if (name == CodeName(code)) error.code = code;
  return error;
}

Result<std::string> HexDecode(std::string_view hex) {
  std::string out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() % 2 != 0) return Malformed();
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return Malformed();
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Status ParseSummary(const std::string& line, UnpackReport* report) {
  const std::vector<std::string> words = Split(line, ' ');
  if (words.size() != 12) return Malformed();
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string& key = words[i];
    const std::string& value = words[i + 1];
    if (key == "digest" || key == "diff_id") {
      RETURN_IF_ERROR(oci::ValidateDigest(value));
      (key == "digest" ? report->digest : report->diff_id) = value;
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t number, ParseUint(value));
    if (key == "packed")
      report->packed_bytes = number;
    else if (key == "bytes")
      report->bytes = number;
    else if (key == "entries")
      report->entries = number;
    else if (key == "dropped")
      report->dropped = number;
    else
      return Malformed();
  }
  return OkStatus();
}

Result<pid_t> Start(const std::string& program, UnpackMode mode, int input_fd,
                    const std::string& directory, int report_fd) {
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0)
    return Error{.code = Code::kInternal, .what = "posix_spawn setup"};
  ::posix_spawn_file_actions_adddup2(&actions, input_fd, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_adddup2(&actions, report_fd, kReportFd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kReportFd + 1);
  std::string name = "hutch-unpack", word = mode == UnpackMode::kLayer ? "layer" : "archive",
              target = directory;
  char* const argv[] = {name.data(), word.data(), target.data(), nullptr};
  char* const envp[] = {nullptr};
  pid_t pid = 0;
  const int err = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, envp);
  ::posix_spawn_file_actions_destroy(&actions);
  if (err != 0) return SysError(err, "start " + program);
  return pid;
}

}  // namespace

Result<std::string> FindProgram(const std::string& name) {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return SysError(errno, "read /proc/self/exe");
  const std::string exe(self, static_cast<size_t>(n));
  const std::string directory = exe.substr(0, exe.rfind('/'));
  std::string tried;
  for (const char* place : kPlaces) {
    const std::string path = directory + place + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
    tried += (tried.empty() ? "" : ", ") + path;
  }
  return Error{.code = Code::kNotFound,
               .what = name + " is not installed (looked for " + tried + ")"};
}

Result<UnpackReport> ParseUnpackReport(std::string_view text) {
  UnpackReport report;
  const std::vector<std::string> lines = Split(text, '\n');
  if (lines[0].starts_with("error ")) return ParseErrorLine(lines[0]);
  RETURN_IF_ERROR(ParseSummary(lines[0], &report));
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    if (!lines[i].starts_with("opaque ")) return Malformed();
    ASSIGN_OR_RETURN(std::string path, HexDecode(std::string_view(lines[i]).substr(7)));
    report.opaque.push_back(std::move(path));
  }
  return report;
}

Result<UnpackReport> RunUnpack(UnpackMode mode, int input_fd, const std::string& directory) {
  auto program = FindProgram("hutch-unpack");
  if (!program) return Error{.code = Code::kUnavailable, .what = program.error().what};
  ASSIGN_OR_RETURN(Pipe report, MakePipe());
  ASSIGN_OR_RETURN(const pid_t pid, Start(*program, mode, input_fd, directory, report.write.get()));
  report.write.reset();
  const auto text = ReadAll(report.read.get(), kMaxReportBytes);
  report.read.reset();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (!text) return Error{.code = Code::kTooLarge, .what = "hutch-unpack: " + text.error().what};
  if (text->empty())
    return Error{
        .code = Code::kKernel,
        .what = "hutch-unpack ended without a report, wait status " + std::to_string(status),
        .hint = "out of memory or CPU time while unpacking"};
  return ParseUnpackReport(*text);
}

}  // namespace hutch::rootfs
