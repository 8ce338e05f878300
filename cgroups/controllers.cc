#include "cgroups/controllers.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/file.h"
#include "base/text.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxFileBytes = 64 * 1024;

constexpr std::array<const Controller*, 4> kControllers = {&kMemoryController, &kPidsController,
                                                           &kCpuController, &kIoController};

}  // namespace

std::span<const Controller* const> Controllers() { return kControllers; }

const Controller* FindController(const std::string& name) {
  for (const Controller* controller : kControllers)
    if (name == controller->name) return controller;
  return nullptr;
}

Status WriteLimit(int dir_fd, const std::string& shown, const char* file,
                  const std::string& value) {
  Status written = WriteExistingAt(dir_fd, file, value);
  if (written) return written;
  Error error = std::move(written).error();
  error.what = "limit " + shown + "/" + file + ": " + error.what;
  if (error.code == Code::kNotFound) {
    error.code = Code::kUnsupported;
    error.hint = "the kernel or its cgroup set-up lacks this controller; see hutch doctor";
  }
  if (error.sys == EINVAL || error.sys == ERANGE) error.code = Code::kInvalidArgument;
  return error;
}

bool HasFile(int dir_fd, const char* file) { return ::faccessat(dir_fd, file, F_OK, 0) == 0; }

std::optional<uint64_t> ReadNumber(int dir_fd, const char* file) {
  const auto text = ReadFileAt(dir_fd, file, kMaxFileBytes);
  if (!text) return std::nullopt;
  const auto number = ParseUint(Trim(*text));
  return number ? std::optional<uint64_t>(*number) : std::nullopt;
}

std::optional<uint64_t> ReadKey(int dir_fd, const char* file, std::string_view key) {
  const auto text = ReadFileAt(dir_fd, file, kMaxFileBytes);
  if (!text) return std::nullopt;
  for (const std::string& line : Split(*text, '\n')) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    const auto number = ParseUint(Trim(std::string_view(line).substr(key.size() + 1)));
    if (number) return *number;
  }
  return std::nullopt;
}

}  // namespace hutch::cgroups
