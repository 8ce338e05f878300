#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"

namespace hutch::cgroups {
namespace {

bool Wanted(const oci::LinuxResources& r) { return !r.io.empty(); }

std::string Device(const oci::LinuxResources::IoLimit& limit) {
  return std::to_string(limit.major) + ":" + std::to_string(limit.minor);
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  for (const auto& limit : r.io) {
    std::string line = Device(limit);
    const auto add = [&](const char* key, const std::optional<uint64_t>& value) {
      if (value) line += std::string(" ") + key + "=" + std::to_string(*value);
    };
    add("rbps", limit.read_bps);
    add("wbps", limit.write_bps);
    add("riops", limit.read_iops);
    add("wiops", limit.write_iops);
    RETURN_IF_ERROR(WriteLimit(dir, shown, "io.max", line));
  }
  return OkStatus();
}

Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  for (const auto& limit : r.io) {
    const std::pair<const char*, const std::optional<uint64_t>&> files[] = {
        {"blkio.throttle.read_bps_device", limit.read_bps},
        {"blkio.throttle.write_bps_device", limit.write_bps},
        {"blkio.throttle.read_iops_device", limit.read_iops},
        {"blkio.throttle.write_iops_device", limit.write_iops}};
    for (const auto& [file, value] : files)
      if (value)
        RETURN_IF_ERROR(WriteLimit(dir, shown, file, Device(limit) + " " + std::to_string(*value)));
  }
  return OkStatus();
}

// "8:0 rbytes=1 wbytes=2 ...": one line for each device.
void StatsV2(int dir, Stats& s) {
  const auto text = ReadFileAt(dir, "io.stat", 64 * 1024);
  if (!text) return;
  s.io_read_bytes = s.io_write_bytes = 0;
  for (const std::string& word : Split(*text, ' ')) {
    const auto add = [&](std::string_view key, std::optional<uint64_t>& sum) {
      if (!word.starts_with(key)) return;
      const auto number = ParseUint(Trim(std::string_view(word).substr(key.size())));
      if (number) *sum += *number;
    };
    add("rbytes=", s.io_read_bytes);
    add("wbytes=", s.io_write_bytes);
  }
}

void StatsV1(int, Stats&) {}  // blkio counts only what it throttles

}  // namespace

constinit const Controller kIoController = {
    "io",
    "blkio",
    false,
    "io.max",
    "blkio.throttle.read_bps_device blkio.throttle.write_bps_device "
    "blkio.throttle.read_iops_device blkio.throttle.write_iops_device",
    Wanted,
    ApplyV2,
    ApplyV1,
    StatsV2,
    StatsV1};

}  // namespace hutch::cgroups
