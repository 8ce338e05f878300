#include "cgroups/controllers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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

const Controller* FindController(std::string_view name) {
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

std::string ReadText(int dir_fd, const char* file) {
  auto text = ReadFileAt(dir_fd, file, kMaxFileBytes);
  return text ? std::move(*text) : std::string();
}

std::optional<uint64_t> ReadNumber(int dir_fd, const char* file) {
  const auto number = ParseUint(Trim(ReadText(dir_fd, file)));
  return number ? std::optional<uint64_t>(*number) : std::nullopt;
}

std::optional<uint64_t> FindKey(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    const auto number = ParseUint(Trim(line.substr(key.size() + 1)));
    if (number) return *number;
  }
  return std::nullopt;
}

std::optional<uint64_t> ReadKey(int dir_fd, const char* file, std::string_view key) {
  return FindKey(ReadText(dir_fd, file), key);
}

}  // namespace hutch::cgroups
