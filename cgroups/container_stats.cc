// `events --stats`: the numbers of a container's groups in the shape that runc gave them, which
// engines read. Absent where nothing counts them.
#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/container_group.h"
#include "cgroups/container_layout.h"
#include "cgroups/controllers.h"
#include "cgroups/hugepages.h"
#include "cgroups/pressure.h"

namespace hutch::cgroups {
namespace {

using oci::Json;

constexpr uint64_t kNsPerUs = 1000;
constexpr uint64_t kNsPerTick = 10000000;  // USER_HZ is 100 on every architecture we build for

// "max" is no limit.
uint64_t ReadLimit(int dir, const char* file) { return ReadNumber(dir, file).value_or(UINT64_MAX); }
uint64_t ReadCount(int dir, const char* file) { return ReadNumber(dir, file).value_or(0); }

uint64_t SumLimits(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

void AddPressure(Json& to, int dir, const char* file) {
  const auto pressure = ParsePressure(ReadText(dir, file));
  if (!pressure) return;
  const auto line = [](const PressureLine& l) {
    return Json{
        {"avg10", l.avg10}, {"avg60", l.avg60}, {"avg300", l.avg300}, {"total", l.total_us}};
  };
  to["psi"]["some"] = line(pressure->some);
  if (pressure->full) to["psi"]["full"] = line(*pressure->full);
}

Json Numbers(const std::string& text) {
  Json numbers = Json::array();
  for (const std::string& word : Split(Trim(text), ' '))
    if (const auto number = ParseUint(word)) numbers.push_back(*number);
  return numbers;
}

// "0-2,5" as [0, 1, 2, 5].
Json NumbersOfList(const std::string& text) {
  constexpr uint64_t kMost = 8192;
  Json numbers = Json::array();
  for (const std::string& range : Split(Trim(text), ',')) {
    const size_t dash = range.find('-');
    const auto first = ParseUint(range.substr(0, dash), kMost);
    const auto last = dash == std::string::npos ? first : ParseUint(range.substr(dash + 1), kMost);
    if (!first || !last) continue;
    for (uint64_t n = *first; n <= *last; ++n) numbers.push_back(n);
  }
  return numbers;
}

Json KeysAndValues(const std::string& text) {
  Json object = Json::object();
  for (const std::string& line : Split(text, '\n')) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    if (const auto number = ParseUint(Trim(line.substr(blank + 1))))
      object[line.substr(0, blank)] = *number;
  }
  return object;
}

Json Throttling(uint64_t periods, uint64_t throttled, uint64_t time_ns) {
  return {{"periods", periods}, {"throttledPeriods", throttled}, {"throttledTime", time_ns}};
}

// The v2 tree counts CPU time on hybrid hosts, too, and only there does it so without ticks.
Json CpuV2(int dir) {
  const std::string stat = ReadText(dir, "cpu.stat");
  const auto value = [&](const char* key) { return FindKey(stat, key).value_or(0); };
  Json cpu;
  cpu["usage"] = {{"total", value("usage_usec") * kNsPerUs},
                  {"kernel", value("system_usec") * kNsPerUs},
                  {"user", value("user_usec") * kNsPerUs}};
  cpu["throttling"] =
      Throttling(value("nr_periods"), value("nr_throttled"), value("throttled_usec") * kNsPerUs);
  AddPressure(cpu, dir, "cpu.pressure");
  return cpu;
}

void AddCpuacct(Json& cpu, int dir) {
  const std::string stat = ReadText(dir, "cpuacct.stat");
  cpu["usage"]["total"] = ReadCount(dir, "cpuacct.usage");
  cpu["usage"]["kernel"] = FindKey(stat, "system").value_or(0) * kNsPerTick;
  cpu["usage"]["user"] = FindKey(stat, "user").value_or(0) * kNsPerTick;
  cpu["usage"]["percpu"] = Numbers(ReadText(dir, "cpuacct.usage_percpu"));
  cpu["usage"]["percpu_kernel"] = Numbers(ReadText(dir, "cpuacct.usage_percpu_sys"));
  cpu["usage"]["percpu_user"] = Numbers(ReadText(dir, "cpuacct.usage_percpu_user"));
}

Json MemoryV2(int dir) {
  const std::string stat = ReadText(dir, "memory.stat");
  const uint64_t usage = ReadCount(dir, "memory.current"), limit = ReadLimit(dir, "memory.max");
  const uint64_t swap = ReadCount(dir, "memory.swap.current");
  const uint64_t failures = ReadKey(dir, "memory.events", "max").value_or(0);
  Json memory;
  memory["cache"] = FindKey(stat, "file").value_or(0);
  memory["usage"] = {{"limit", limit}, {"usage", usage}, {"failcnt", failures}};
  if (const auto peak = ReadNumber(dir, "memory.peak")) memory["usage"]["max"] = *peak;
  memory["swap"] = {{"limit", SumLimits(limit, ReadLimit(dir, "memory.swap.max"))},
                    {"usage", usage + swap},
                    {"failcnt", ReadKey(dir, "memory.swap.events", "fail").value_or(0)}};
  memory["kernel"] = {{"usage", FindKey(stat, "kernel").value_or(0)}, {"failcnt", 0}};
  memory["kernelTCP"] = {{"usage", FindKey(stat, "sock").value_or(0)}, {"failcnt", 0}};
  memory["raw"] = KeysAndValues(stat);
  AddPressure(memory, dir, "memory.pressure");
  return memory;
}

Json MemoryEntryV1(int dir, const std::string& prefix) {
  const auto number = [&](const char* name) {
    return ReadCount(dir, (prefix + "." + name).c_str());
  };
  return {{"limit", number("limit_in_bytes")},
          {"usage", number("usage_in_bytes")},
          {"max", number("max_usage_in_bytes")},
          {"failcnt", number("failcnt")}};
}

Json MemoryV1(int dir) {
  const std::string stat = ReadText(dir, "memory.stat");
  Json memory;
  memory["cache"] = FindKey(stat, "cache").value_or(0);
  memory["usage"] = MemoryEntryV1(dir, "memory");
  memory["swap"] = MemoryEntryV1(dir, "memory.memsw");
  memory["kernel"] = MemoryEntryV1(dir, "memory.kmem");
  memory["kernelTCP"] = MemoryEntryV1(dir, "memory.kmem.tcp");
  memory["raw"] = KeysAndValues(stat);
  return memory;
}

Json Pids(int dir) {
  Json pids = {{"current", ReadCount(dir, "pids.current")}};
  if (const auto limit = ReadNumber(dir, "pids.max")) pids["limit"] = *limit;
  return pids;
}

Json IoEntry(const std::string& device, const std::string& op, uint64_t value) {
  const size_t colon = device.find(':');
  const auto major = ParseUint(device.substr(0, colon));
  const auto minor =
      ParseUint(colon == std::string::npos ? "" : std::string_view(device).substr(colon + 1));
  return {
      {"major", major ? *major : 0}, {"minor", minor ? *minor : 0}, {"op", op}, {"value", value}};
}

// "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6"
Json BlkioV2(int dir) {
  struct Key {
    std::string_view name;
    const char *list, *op;
  };
  static constexpr Key kKeys[] = {{"rbytes", "ioServiceBytesRecursive", "Read"},
                                  {"wbytes", "ioServiceBytesRecursive", "Write"},
                                  {"dbytes", "ioServiceBytesRecursive", "Discard"},
                                  {"rios", "ioServicedRecursive", "Read"},
                                  {"wios", "ioServicedRecursive", "Write"},
                                  {"dios", "ioServicedRecursive", "Discard"}};
  Json blkio = Json::object();
  for (const std::string& line : Split(ReadText(dir, "io.stat"), '\n')) {
    const std::vector<std::string> words = Split(line, ' ');
    for (const std::string& word : words) {
      const size_t equals = std::min(word.find('='), word.size());
      for (const Key& key : kKeys) {
        if (key.name != std::string_view(word).substr(0, equals)) continue;
        if (const auto value = ParseUint(std::string_view(word).substr(equals + 1)))
          blkio[key.list].push_back(IoEntry(words[0], key.op, *value));
      }
    }
  }
  AddPressure(blkio, dir, "io.pressure");
  return blkio;
}

// "8:0 Read 1", ..., "Total 3"
Json BlkioV1(int dir) {
  Json blkio = Json::object();
  for (const auto& [list, file] :
       {std::pair{"ioServiceBytesRecursive", "blkio.throttle.io_service_bytes_recursive"},
        std::pair{"ioServicedRecursive", "blkio.throttle.io_serviced_recursive"}})
    for (const std::string& line : Split(ReadText(dir, file), '\n')) {
      const std::vector<std::string> words = Split(line, ' ');
      if (words.size() != 3) continue;
      if (const auto value = ParseUint(words[2]))
        blkio[list].push_back(IoEntry(words[0], words[1], *value));
    }
  return blkio;
}

Json Hugetlb(int dir, int version) {
  Json all = Json::object();
  for (const std::string& size : HugepageSizes()) {
    const std::string prefix = "hugetlb." + size;
    const auto number = [&](const char* name) { return ReadCount(dir, (prefix + name).c_str()); };
    if (version == 2)
      all[size] = {{"usage", number(".current")},
                   {"failcnt", ReadKey(dir, (prefix + ".events").c_str(), "max").value_or(0)}};
    else
      all[size] = {{"usage", number(".usage_in_bytes")},
                   {"max", number(".max_usage_in_bytes")},
                   {"failcnt", number(".failcnt")}};
  }
  return all;
}

Json Cpuset(int dir, int version) {
  const auto list = [&](const char* file) { return NumbersOfList(ReadText(dir, file)); };
  if (version == 2)
    return {{"cpus", list("cpuset.cpus.effective")}, {"mems", list("cpuset.mems.effective")}};
  const auto number = [&](const char* file) { return ReadCount(dir, file); };
  return {{"cpus", list("cpuset.cpus")},
          {"cpu_exclusive", number("cpuset.cpu_exclusive")},
          {"mems", list("cpuset.mems")},
          {"mem_hardwall", number("cpuset.mem_hardwall")},
          {"mem_exclusive", number("cpuset.mem_exclusive")},
          {"memory_migrate", number("cpuset.memory_migrate")},
          {"sched_load_balance", number("cpuset.sched_load_balance")}};
}

}  // namespace

Result<oci::Json> ContainerGroup::ReadStats() const {
  if (!exists())
    return Error{.code = Code::kNotFound, .what = "this container has no cgroup to read from"};
  Json data;
  data["cpu"] = CpuV2(v2_dir_.get());
  if (const Home home = HomeOf("cpuacct"); home.version == 1) AddCpuacct(data["cpu"], home.dir_fd);
  if (const Home home = HomeOf("cpu"); home.version == 1) {
    const std::string stat = ReadText(home.dir_fd, "cpu.stat");
    const auto value = [&](const char* key) { return FindKey(stat, key).value_or(0); };
    data["cpu"]["throttling"] =
        Throttling(value("nr_periods"), value("nr_throttled"), value("throttled_time"));
  }
  const Home cpuset = HomeOf("cpuset"), memory = HomeOf("memory"), pids = HomeOf("pids");
  const Home blkio = HomeOf("blkio"), io = HomeOf("io"), hugetlb = HomeOf("hugetlb");
  const Json none = Json::object();
  data["cpuset"] = cpuset.version == 0 ? none : Cpuset(cpuset.dir_fd, cpuset.version);
  data["memory"] = memory.version == 0   ? none
                   : memory.version == 1 ? MemoryV1(memory.dir_fd)
                                         : MemoryV2(memory.dir_fd);
  data["pids"] = pids.version == 0 ? none : cgroups::Pids(pids.dir_fd);
  data["blkio"] = blkio.version == 1 ? BlkioV1(blkio.dir_fd)
                  : io.version == 2  ? BlkioV2(io.dir_fd)
                                     : none;
  data["hugetlb"] = hugetlb.version == 0 ? none : Hugetlb(hugetlb.dir_fd, hugetlb.version);
  data["intel_rdt"] = none;
  data["network_interfaces"] = nullptr;
  return data;
}

}  // namespace hutch::cgroups
