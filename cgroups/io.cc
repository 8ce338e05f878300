#include "base/text.h"
#include "cgroups/controllers.h"

namespace hutch::cgroups {
namespace {

using IoLimit = oci::LinuxResources::IoLimit;

struct IoValue {
  const char* v2_key;
  const char* v1_file;
  std::optional<uint64_t> IoLimit::*value;
};
constexpr IoValue kIoValues[] = {
    {"rbps", "blkio.throttle.read_bps_device", &IoLimit::read_bps},
    {"wbps", "blkio.throttle.write_bps_device", &IoLimit::write_bps},
    {"riops", "blkio.throttle.read_iops_device", &IoLimit::read_iops},
    {"wiops", "blkio.throttle.write_iops_device", &IoLimit::write_iops},
};

bool Wanted(const oci::LinuxResources& r) { return !r.io.empty(); }

std::string Device(const IoLimit& limit) {
  return std::to_string(limit.major) + ":" + std::to_string(limit.minor);
}

// To v2 a zero is invalid, to v1 it means no limit.
Status Check(const oci::LinuxResources& r) {
  for (const IoLimit& limit : r.io)
    for (const IoValue& row : kIoValues)
      if (limit.*row.value == 0)
        return Error{
            .code = Code::kInvalidArgument,
            .what = "io limit " + std::string(row.v2_key) + "=0 of device " + Device(limit),
            .field = "limits.io"};
  return OkStatus();
}

Status WriteIo(int dir, const std::string& shown, const char* file, const std::string& line) {
  Status written = WriteLimit(dir, shown, file, line);
  if (written || written.error().sys != ENODEV) return written;
  Error error = std::move(written).error();  // no such block device
  error.code = Code::kInvalidArgument;
  error.field = "limits.io";
  return error;
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  for (const IoLimit& limit : r.io) {
    std::string line = Device(limit);
    for (const IoValue& row : kIoValues)
      if (const auto& value = limit.*row.value)
        line += std::string(" ") + row.v2_key + "=" + std::to_string(*value);
    RETURN_IF_ERROR(WriteIo(dir, shown, "io.max", line));
  }
  return OkStatus();
}

Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  for (const IoLimit& limit : r.io)
    for (const IoValue& row : kIoValues)
      if (const auto& value = limit.*row.value)
        RETURN_IF_ERROR(
            WriteIo(dir, shown, row.v1_file, Device(limit) + " " + std::to_string(*value)));
  return OkStatus();
}

// "8:0 rbytes=1 wbytes=2 ...": one line for each device.
void StatsV2(int dir, Stats& s) {
  if (!HasFile(dir, "io.stat")) return;
  uint64_t read = 0, written = 0;
  for (const std::string& line : Split(ReadText(dir, "io.stat"), '\n'))
    for (const std::string& word : Split(line, ' ')) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) continue;
      const auto number = ParseUint(std::string_view(word).substr(equals + 1));
      if (number && word.starts_with("rbytes=")) read += *number;
      if (number && word.starts_with("wbytes=")) written += *number;
    }
  s.io_read_bytes = read;
  s.io_write_bytes = written;
}

// "8:0 Read 1", "8:0 Write 2", ..., "Total 3". Devices that no group ever throttled are not there.
void StatsV1(int dir, Stats& s) {
  for (const std::string& line :
       Split(ReadText(dir, "blkio.throttle.io_service_bytes_recursive"), '\n')) {
    const std::vector<std::string> words = Split(line, ' ');
    if (words.size() != 3) continue;
    const auto number = ParseUint(words[2]);
    if (number && words[1] == "Read") s.io_read_bytes = s.io_read_bytes.value_or(0) + *number;
    if (number && words[1] == "Write") s.io_write_bytes = s.io_write_bytes.value_or(0) + *number;
  }
}

}  // namespace

constinit const Controller kIoController = {
    "io",
    "blkio",
    false,
    "io.max",
    "blkio.throttle.read_bps_device blkio.throttle.write_bps_device "
    "blkio.throttle.read_iops_device blkio.throttle.write_iops_device",
    Wanted,
    Check,
    ApplyV2,
    ApplyV1,
    StatsV2,
    StatsV1};

}  // namespace hutch::cgroups
