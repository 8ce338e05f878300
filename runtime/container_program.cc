#include "runtime/container_program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>

#include "base/text.h"

namespace hutch::runtime {
namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

std::string LowerCaseError(int sys) {
  std::string text = std::strerror(sys);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(text[0]));
  return text;
}

Error Refusal(const std::string& name, int sys, const std::string& why) {
  const bool there = sys != ENOENT && sys != ENOTDIR;
  return Error{.code = there ? Code::kCommandNotExecutable : Code::kCommandNotFound,
               .sys = sys,
               .what = "exec: \"" + name + "\": " + why};
}

// 0, or why the file cannot be executed.
int CheckFile(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return errno;
  if (S_ISDIR(st.st_mode)) return EISDIR;
  if (::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) return errno;
  // For root the kernel asks for one x bit at least, access(2) for a directory's only.
  return (st.st_mode & 0111) != 0 ? 0 : EACCES;
}

}  // namespace

Result<std::string> FindProgram(const std::string& name, const std::vector<std::string>& env) {
  if (name.empty()) return Refusal(name, ENOENT, "executable file not found in $PATH");
  if (name.find('/') != std::string::npos) {
    const int sys = CheckFile(name);
    if (sys == 0) return name;
    const bool missing = sys == ENOENT || sys == ENOTDIR;
    return Refusal(name, sys, (missing ? "stat " + name + ": " : "") + LowerCaseError(sys));
  }
  std::string path = kDefaultPath;
  for (const std::string& entry : env)
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  int seen = ENOENT;
  for (const std::string& directory : Split(path, ':')) {
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    const int sys = CheckFile(candidate);
    if (sys == 0) return candidate;
    if (sys == EACCES) seen = EACCES;
  }
  if (seen == EACCES) return Refusal(name, EACCES, "permission denied");
  return Refusal(name, ENOENT, "executable file not found in $PATH");
}

Status CheckPreserved(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const int flags = ::fcntl(static_cast<int>(3 + i), F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "descriptor " + std::to_string(3 + i) + " of " + std::to_string(count) +
                           " to preserve is not open",
                   .field = "--preserve-fds"};
  }
  return OkStatus();
}

Error ExecuteProgram(const std::string& path, const std::vector<std::string>& args,
                     const std::vector<std::string>& env) {
  std::vector<char*> argv, envp;
  for (const std::string& one : args) argv.push_back(const_cast<char*>(one.c_str()));
  for (const std::string& one : env) envp.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(path.c_str(), argv.data(), envp.data());
  const int sys = errno;
  Error error = Refusal(path, sys, LowerCaseError(sys));
  error.what = "exec " + path + ": " + LowerCaseError(sys);
  return error;
}

}  // namespace hutch::runtime
