#include "cgroups/systemd_scope.h"

#include <dlfcn.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <type_traits>

#include "base/file.h"
#include "base/text.h"

namespace hutch::cgroups {
namespace {

constexpr char kService[] = "org.freedesktop.systemd1";
constexpr char kObject[] = "/org/freedesktop/systemd1";
constexpr char kManager[] = "org.freedesktop.systemd1.Manager";
constexpr char kPrivateSocket[] = "unix:path=/run/systemd/private";
constexpr int kJobPatienceS = 60;
constexpr uint64_t kMicrosecondsPerSecond = 1000000;

// The functions of libsystemd.so.0 that are used here, by their own names.
struct BusLibrary {
#define HUTCH_BUS_FUNCTIONS(X)      \
  X(sd_bus_open_system)             \
  X(sd_bus_open_user)               \
  X(sd_bus_new)                     \
  X(sd_bus_set_address)             \
  X(sd_bus_start)                   \
  X(sd_bus_flush_close_unref)       \
  X(sd_bus_match_signal)            \
  X(sd_bus_process)                 \
  X(sd_bus_wait)                    \
  X(sd_bus_call)                    \
  X(sd_bus_error_free)              \
  X(sd_bus_message_new_method_call) \
  X(sd_bus_message_append)          \
  X(sd_bus_message_append_array)    \
  X(sd_bus_message_append_basic)    \
  X(sd_bus_message_open_container)  \
  X(sd_bus_message_close_container) \
  X(sd_bus_message_read)            \
  X(sd_bus_message_unref)
#define HUTCH_BUS_MEMBER(name) decltype(&::name) name = nullptr;
  HUTCH_BUS_FUNCTIONS(HUTCH_BUS_MEMBER)
#undef HUTCH_BUS_MEMBER
};

Result<BusLibrary> LoadBusLibrary() {
  BusLibrary bus;
  void* const library = ::dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
  const Error missing{.code = Code::kUnsupported,
                      .what =
                          "the systemd cgroup manager needs libsystemd.so.0, which is not "
                          "installed, or too old"};
  if (library == nullptr) return missing;
#define HUTCH_BUS_LOAD(name)                                                \
  bus.name = reinterpret_cast<decltype(bus.name)>(::dlsym(library, #name)); \
  if (bus.name == nullptr) return missing;
  HUTCH_BUS_FUNCTIONS(HUTCH_BUS_LOAD)
#undef HUTCH_BUS_LOAD
  return bus;  // never unloaded: this process is short-lived
}

// What one job of the manager came to.
struct JobWatch {
  const BusLibrary* api = nullptr;
  std::map<std::string, std::string> results;  // job's object path: "done", "failed" ...
};

int OnJobRemoved(sd_bus_message* message, void* data, sd_bus_error* /*error*/) {
  auto& watch = *static_cast<JobWatch*>(data);
  uint32_t id = 0;
  const char *job = nullptr, *unit = nullptr, *result = nullptr;
  if (watch.api->sd_bus_message_read(message, "uoss", &id, &job, &unit, &result) >= 0)
    watch.results[job] = result;
  return 0;
}

class Bus {
 public:
  static Result<std::unique_ptr<Bus>> Connect(bool user_manager);
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;
  ~Bus() {
    if (bus_ != nullptr) api_.sd_bus_flush_close_unref(bus_);
  }

  // A method of the manager; `fill` appends the arguments and returns what sd-bus returned.
  template <class Fill>
  Result<std::string> Call(const char* method, const std::string& unit, const Fill& fill);
  Status WaitForJob(const std::string& job, const std::string& unit);
  const BusLibrary& api() const { return api_; }
  const std::string& error_name() const { return error_name_; }  // of the last call that failed

 private:
  explicit Bus(const BusLibrary& api) : api_(api) { watch_.api = &api_; }

  BusLibrary api_;
  sd_bus* bus_ = nullptr;
  JobWatch watch_;
  std::string error_name_;
};

Error BusError(int result, const std::string& what) {
  Error error = SysError(-result, "systemd: " + what);
  if (error.sys == EACCES || error.sys == EPERM) error.code = Code::kForbidden;
  return error;
}

Result<std::unique_ptr<Bus>> Bus::Connect(bool user_manager) {
  ASSIGN_OR_RETURN(const BusLibrary api, LoadBusLibrary());
  std::unique_ptr<Bus> bus(new Bus(api));
  int result = user_manager ? api.sd_bus_open_user(&bus->bus_) : api.sd_bus_open_system(&bus->bus_);
  if (result < 0 && !user_manager && ::geteuid() == 0) {
    // No message bus: systemd listens itself, for root.
    result = api.sd_bus_new(&bus->bus_);
    if (result >= 0) result = api.sd_bus_set_address(bus->bus_, kPrivateSocket);
    if (result >= 0) result = api.sd_bus_start(bus->bus_);
  }
  if (result < 0)
    return BusError(result, user_manager ? "no bus of the user's manager" : "no system bus");
  result = api.sd_bus_match_signal(bus->bus_, nullptr, nullptr, kObject, kManager, "JobRemoved",
                                   OnJobRemoved, &bus->watch_);
  if (result < 0) return BusError(result, "watch jobs");
  const auto nothing = [](sd_bus_message*) { return 0; };
  IgnoreError(bus->Call("Subscribe", "", nothing), "done already, or every peer gets signals");
  return bus;
}

template <class Fill>
Result<std::string> Bus::Call(const char* method, const std::string& unit, const Fill& fill) {
  sd_bus_message *call = nullptr, *reply = nullptr;
  sd_bus_error error = SD_BUS_ERROR_NULL;
  int result =
      api_.sd_bus_message_new_method_call(bus_, &call, kService, kObject, kManager, method);
  if (result >= 0) result = fill(call);
  if (result >= 0)
    result = api_.sd_bus_call(bus_, call, kJobPatienceS * kMicrosecondsPerSecond, &error, &reply);
  std::string job, message = error.message != nullptr ? error.message : "";
  error_name_ = error.name != nullptr ? error.name : "";
  const char* path = nullptr;
  if (result >= 0 && api_.sd_bus_message_read(reply, "o", &path) > 0) job = path;
  api_.sd_bus_error_free(&error);
  api_.sd_bus_message_unref(call);
  api_.sd_bus_message_unref(reply);
  if (result >= 0) return job;
  return BusError(result, std::string(method) + " " + unit + ": " + message);
}

Status Bus::WaitForJob(const std::string& job, const std::string& unit) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kJobPatienceS);
  while (!watch_.results.contains(job)) {
    const int done = api_.sd_bus_process(bus_, nullptr);
    if (done < 0) return BusError(done, "wait for the job of " + unit);
    if (done > 0) continue;
    if (std::chrono::steady_clock::now() > end)
      return Error{.code = Code::kUnavailable,
                   .what = "systemd: the job of " + unit + " did not end in " +
                           std::to_string(kJobPatienceS) + " s"};
    const int waited = api_.sd_bus_wait(bus_, kMicrosecondsPerSecond);
    if (waited < 0 && waited != -EINTR) return BusError(waited, "wait for the job of " + unit);
  }
  const std::string& result = watch_.results[job];
  if (result == "done" || result == "skipped") return OkStatus();
  return Error{.code = Code::kKernel, .what = "systemd: the job of " + unit + " ended: " + result};
}

int AppendStrings(const BusLibrary& api, sd_bus_message* m, const std::vector<std::string>& texts) {
  int result = api.sd_bus_message_open_container(m, 'a', "s");
  for (const std::string& text : texts)
    if (result >= 0) result = api.sd_bus_message_append_basic(m, 's', text.c_str());
  return result < 0 ? result : api.sd_bus_message_close_container(m);
}

int AppendValue(const BusLibrary& api, sd_bus_message* m, const UnitProperty& property) {
  if (const auto* text = std::get_if<std::string>(&property.value))
    return api.sd_bus_message_append_basic(m, 's', text->c_str());
  if (const auto* texts = std::get_if<std::vector<std::string>>(&property.value))
    return AppendStrings(api, m, *texts);
  if (const auto* bytes = std::get_if<std::vector<uint8_t>>(&property.value))
    return api.sd_bus_message_append_array(m, 'y', bytes->data(), bytes->size());
  const auto* number = std::get_if<uint64_t>(&property.value);
  const uint64_t value =
      number != nullptr ? *number : static_cast<uint64_t>(std::get<int64_t>(property.value));
  const auto small = static_cast<uint32_t>(value);  // b, u and i are 32 bits on the wire
  const bool wide = property.type == "t" || property.type == "x";
  return api.sd_bus_message_append_basic(m, property.type[0],
                                         wide ? static_cast<const void*>(&value) : &small);
}

int AppendProperties(const BusLibrary& api, sd_bus_message* m,
                     const std::vector<UnitProperty>& properties) {
  for (const UnitProperty& property : properties) {
    int result = api.sd_bus_message_open_container(m, 'r', "sv");
    if (result >= 0) result = api.sd_bus_message_append_basic(m, 's', property.name.c_str());
    if (result >= 0) result = api.sd_bus_message_open_container(m, 'v', property.type.c_str());
    if (result >= 0) result = AppendValue(api, m, property);
    if (result >= 0) result = api.sd_bus_message_close_container(m);
    if (result >= 0) result = api.sd_bus_message_close_container(m);
    if (result < 0) return result;
  }
  return 0;
}

int FillStart(const BusLibrary& api, sd_bus_message* m, const ScopeRequest& request) {
  int result = api.sd_bus_message_append(m, "ss", request.unit.c_str(), "replace");
  if (result >= 0) result = api.sd_bus_message_open_container(m, 'a', "(sv)");
  if (result >= 0)
    result = api.sd_bus_message_append(
        m, "(sv)(sv)(sv)(sv)(sv)(sv)", "Description", "s", request.description.c_str(), "Slice",
        "s", request.slice.c_str(), "Delegate", "b", 1, "DefaultDependencies", "b", 0, "PIDs", "au",
        1u, static_cast<uint32_t>(request.pid), "CollectMode", "s", "inactive-or-failed");
  if (result >= 0)
    result = api.sd_bus_message_append(m, "(sv)(sv)(sv)(sv)", "MemoryAccounting", "b", 1,
                                       "CPUAccounting", "b", 1, "IOAccounting", "b", 1,
                                       "TasksAccounting", "b", 1);
  if (result >= 0) result = AppendProperties(api, m, request.properties);
  if (result >= 0) result = api.sd_bus_message_close_container(m);
  return result < 0 ? result : api.sd_bus_message_append(m, "a(sa(sv))", 0);
}

void ResetFailed(Bus& bus, const std::string& unit) {
  IgnoreError(bus.Call("ResetFailedUnit", unit,
                       [&](sd_bus_message* m) {
                         return bus.api().sd_bus_message_append(m, "s", unit.c_str());
                       }),
              "not failed, or gone");
}

Result<std::vector<std::string>> ParseTextList(std::string_view text) {
  std::vector<std::string> list;
  for (const std::string& item : Split(text.substr(1, text.size() - 2), ',')) {
    const std::string_view word = Trim(item);
    if (word.size() < 2 || (word[0] != '\'' && word[0] != '"') || word.back() != word[0])
      return Error{.code = Code::kInvalidArgument, .what = "no list of strings"};
    list.emplace_back(word.substr(1, word.size() - 2));
  }
  return list;
}

}  // namespace

Result<UnitProperty> ParseUnitProperty(std::string_view name, std::string_view text) {
  const Error bad{.code = Code::kInvalidArgument,
                  .what = "annotation org.systemd.property." + std::string(name) +
                          ": not understood: " + std::string(text),
                  .field = "annotations"};
  const std::string property(name);
  text = Trim(text);
  if (text == "true" || text == "false")
    return UnitProperty{property, "b", uint64_t{text == "true"}};
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0])
    return UnitProperty{property, "s", std::string(text.substr(1, text.size() - 2))};
  if (text.size() > 2 && text[0] == '[' && text.back() == ']') {
    auto list = ParseTextList(text);
    if (!list) return bad;
    return UnitProperty{property, "as", std::move(*list)};
  }
  std::string type = "i";
  for (const auto& [word, letter] : {std::pair<std::string_view, const char*>{"uint64 ", "t"},
                                     {"uint32 ", "u"},
                                     {"int64 ", "x"},
                                     {"int32 ", "i"}})
    if (text.starts_with(word)) {
      type = letter;
      text = Trim(text.substr(word.size()));
      break;
    }
  const bool negative = text.starts_with('-') && (type == "i" || type == "x");
  const uint64_t most = type == "t"   ? UINT64_MAX
                        : type == "u" ? UINT32_MAX
                        : type == "x" ? INT64_MAX
                                      : INT32_MAX;
  const auto number = ParseUint(negative ? text.substr(1) : text, most);
  if (!number) return bad;
  if (negative) return UnitProperty{property, type, -static_cast<int64_t>(*number)};
  return UnitProperty{property, type, *number};
}

Status CheckSystemd(bool user_manager) {
  if (!PathExists("/run/systemd/system"))
    return Error{.code = Code::kUnsupported,
                 .what =
                     "the systemd cgroup manager was asked for, and systemd does not run here "
                     "(no /run/systemd/system)",
                 .hint = "use cgroupfs: without --systemd-cgroup"};
  if (user_manager && ::getenv("XDG_RUNTIME_DIR") == nullptr &&
      ::getenv("DBUS_SESSION_BUS_ADDRESS") == nullptr)
    return Error{.code = Code::kUnsupported,
                 .what =
                     "the user's systemd cannot be found: neither XDG_RUNTIME_DIR nor "
                     "DBUS_SESSION_BUS_ADDRESS is set"};
  return OkStatus();
}

Status StartUnit(const ScopeRequest& request) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Bus> bus, Bus::Connect(request.user_manager));
  const auto start = [&] {
    return bus->Call("StartTransientUnit", request.unit,
                     [&](sd_bus_message* m) { return FillStart(bus->api(), m, request); });
  };
  auto job = start();
  if (!job && bus->error_name() == "org.freedesktop.systemd1.UnitExists") {
    // Left behind by a container that failed.
    ResetFailed(*bus, request.unit);
    job = start();
  }
  if (!job) return std::move(job).error();
  return bus->WaitForJob(*job, request.unit);
}

Status SetUnitProperties(const std::string& unit, bool user_manager,
                         const std::vector<UnitProperty>& properties) {
  if (properties.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Bus> bus, Bus::Connect(user_manager));
  const auto fill = [&](sd_bus_message* m) {
    int result = bus->api().sd_bus_message_append(m, "sb", unit.c_str(), 1);
    if (result >= 0) result = bus->api().sd_bus_message_open_container(m, 'a', "(sv)");
    if (result >= 0) result = AppendProperties(bus->api(), m, properties);
    return result < 0 ? result : bus->api().sd_bus_message_close_container(m);
  };
  auto set = bus->Call("SetUnitProperties", unit, fill);
  if (!set) return std::move(set).error();
  return OkStatus();
}

Status StopUnit(const std::string& unit, bool user_manager) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Bus> bus, Bus::Connect(user_manager));
  auto job = bus->Call("StopUnit", unit, [&](sd_bus_message* m) {
    return bus->api().sd_bus_message_append(m, "ss", unit.c_str(), "replace");
  });
  if (!job && bus->error_name() == "org.freedesktop.systemd1.NoSuchUnit") return OkStatus();
  if (!job) return std::move(job).error();
  Status stopped = bus->WaitForJob(*job, unit);
  ResetFailed(*bus, unit);
  return stopped;
}

}  // namespace hutch::cgroups
