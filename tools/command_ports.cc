// port add, ls, rm, and open.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "tools/commands.h"
#include "tools/process.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

std::string TargetOf(const Options& options) {
  return "/v1/sandboxes/" + EncodeSegment(options.id) + "/ports";
}

struct PortLine {
  uint64_t port = 0, host_port = 0, connections = 0, open = 0, sent = 0, received = 0;
  std::string address, url, label, error;
  bool listening = false;
};

Result<PortLine> ReadLine(const Json& json) {
  PortLine line;
  RETURN_IF_ERROR(oci::ObjectReader(json, "port")
                      .Uint("port", &line.port)
                      .Uint("host_port", &line.host_port)
                      .Uint("connections", &line.connections)
                      .Uint("open_connections", &line.open)
                      .Uint("sent_bytes", &line.sent)
                      .Uint("received_bytes", &line.received)
                      .String("address", &line.address)
                      .String("url", &line.url)
                      .String("label", &line.label)
                      .String("error", &line.error)
                      .Bool("listening", &line.listening)
                      .Done(Unknown::kIgnore));
  return line;
}

std::string HostOf(const PortLine& line) {
  const bool v6 = line.address.find(':') != std::string::npos;
  return (v6 ? "[" + line.address + "]" : line.address) + ":" + std::to_string(line.host_port);
}

Cell StateCell(const PortLine& line) {
  if (!line.error.empty()) return {line.error, Colour::kRed};
  if (line.listening) return {"listening", Colour::kGreen};
  return {"nobody listens", Colour::kYellow};
}

// A member that must be a list.
Result<const Json*> ListOf(const Json& reply, const char* name) {
  const auto it = reply.find(name);
  if (it != reply.end() && it->is_array()) return &*it;
  return Error{.what = std::string("the daemon's reply has no list of ") + name};
}

struct Listener {
  uint64_t port = 0;
  std::string address;
};

// What listens inside and has no forward.
Result<std::vector<Listener>> Unforwarded(const Json& inside, const std::vector<uint64_t>& ports) {
  std::vector<Listener> found;
  for (const Json& item : inside) {
    Listener one;
    RETURN_IF_ERROR(oci::ObjectReader(item, "listening")
                        .Uint("port", &one.port)
                        .String("address", &one.address)
                        .Done(Unknown::kIgnore));
    if (std::find(ports.begin(), ports.end(), one.port) == ports.end()) found.push_back(one);
  }
  return found;
}

// The forward of a port, made where there is none.
Result<Json> ForwardOf(Context& context, const Json& wanted) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get(TargetOf(context.options)));
  ASSIGN_OR_RETURN(const Json* forwards, ListOf(reply, "ports"));
  for (const Json& item : *forwards)
    if (item.is_object() && item.value("port", Json()) == wanted["port"]) return item;
  return context.client.Post(TargetOf(context.options), wanted);
}

bool HasDisplay() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  return set("DISPLAY") || set("WAYLAND_DISPLAY");
}

}  // namespace

Result<int> RunPortAdd(Context& context) {
  ASSIGN_OR_RETURN(Json body, PlanPort("PORT", context.options.port));
  if (!context.options.label.empty()) body["label"] = context.options.label;
  ASSIGN_OR_RETURN(const Json made, context.client.Post(TargetOf(context.options), body));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(made));
    return 0;
  }
  ASSIGN_OR_RETURN(const PortLine line, ReadLine(made));
  RETURN_IF_ERROR(Print(HostOf(line) + "\n"));
  return 0;
}

Result<int> RunPortList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get(TargetOf(context.options)));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  ASSIGN_OR_RETURN(const Json* forwards, ListOf(reply, "ports"));
  ASSIGN_OR_RETURN(const Json* inside, ListOf(reply, "listening"));
  Table table({{"PORT", Align::kRight},
               {"HOST"},
               {"STATE"},
               {"CONNECTIONS", Align::kRight},
               {"IN", Align::kRight},
               {"OUT", Align::kRight},
               {"LABEL"}});
  std::vector<uint64_t> ports;
  for (const Json& item : *forwards) {
    ASSIGN_OR_RETURN(const PortLine line, ReadLine(item));
    ports.push_back(line.port);
    table.Add({std::to_string(line.port), HostOf(line), StateCell(line),
               std::to_string(line.connections), FormatSize(line.sent), FormatSize(line.received),
               line.label.empty() ? "-" : line.label});
  }
  ASSIGN_OR_RETURN(const std::vector<Listener> others, Unforwarded(*inside, ports));
  for (const Listener& one : others)
    table.Add({std::to_string(one.port), "-", "on " + one.address + " inside", "-", "-", "-", "-"});
  RETURN_IF_ERROR(Print(table.Render(context.colours)));
  return 0;
}

Result<int> RunPortRemove(Context& context) {
  RETURN_IF_ERROR(
      context.client.Delete(TargetOf(context.options) + "/" + EncodeSegment(context.options.port)));
  return 0;
}

Result<int> RunOpen(Context& context) {
  ASSIGN_OR_RETURN(const Json wanted, PlanPort("PORT", context.options.port));
  ASSIGN_OR_RETURN(const Json forward, ForwardOf(context, wanted));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(forward));
    return 0;
  }
  ASSIGN_OR_RETURN(const PortLine line, ReadLine(forward));
  if (!line.error.empty())
    return Error{.code = Code::kUnavailable,
                 .what = line.error,
                 .hint = "hutch port rm " + context.options.id + " " + std::to_string(line.port) +
                         ", then again"};
  RETURN_IF_ERROR(Print(line.url + "\n"));
  if (!line.listening) Note("nobody listens on port " + std::to_string(line.port) + " inside yet");
  if (context.options.print_only || !HasDisplay() || !ProgramExists("xdg-open")) return 0;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn({"xdg-open", line.url}, {}));
  ASSIGN_OR_RETURN(const int code, WaitForExit(pid));
  if (code != 0) Note("xdg-open could not show it");
  return 0;
}

}  // namespace hutch::tools
