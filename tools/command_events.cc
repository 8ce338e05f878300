// events: what happens in the daemon, a line an event.
#include <chrono>

#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;

Result<std::string> TargetOf(const Options& options) {
  std::string target = options.no_follow ? "/v1/events?follow=false" : "/v1/events?follow=true";
  const auto add = [&](const char* name, const std::string& value) {
    target.append("&").append(name).append("=").append(EncodeSegment(value));
  };
  for (const std::string& kind : options.kinds) add("kind", kind);
  for (const std::string& sandbox : options.sandboxes) add("sandbox", sandbox);
  for (const std::string& label : options.labels) add("label", label);
  if (!options.cursor.empty()) add("cursor", options.cursor);
  if (options.since.empty()) return target;
  ASSIGN_OR_RETURN(const std::string since,
                   ParseSince(options.since, std::chrono::system_clock::now()));
  add("since", since);
  return target;
}

std::string TextOf(const Json& event, const char* member) {
  const auto found = event.find(member);
  return found != event.end() && found->is_string() ? Printable(found->get<std::string>()) : "";
}

std::string LineOf(const Json& event, Colours colours) {
  std::string kind = TextOf(event, "event");
  kind.resize(std::max<size_t>(kind.size(), 17), ' ');
  std::string line = TextOf(event, "at") + "  " + Paint(kind, Colour::kBold, colours);
  const std::string sandbox = TextOf(event, "sandbox"), name = TextOf(event, "name");
  if (!sandbox.empty()) line += "  " + sandbox;
  if (!name.empty()) line += " (" + name + ")";
  const auto detail = event.find("detail");
  if (detail != event.end() && detail->is_object() && !detail->empty())
    line += "  " + Printable(oci::PrintJson(*detail));
  return line + "\n";
}

void NoteLoss(const Json& event) {
  if (event.value("restarted", Json()) == true)
    return Note("the daemon was started again: what happened before it is not known any more");
  Note("up to " + oci::PrintJson(event.value("events", Json())) +
       " events are gone: the daemon keeps no more");
}

Status PrintEvent(const Json& event, const Context& context) {
  if (context.options.json) return WriteAll(STDOUT_FILENO, oci::PrintJson(event) + "\n");
  if (event["event"] == "lost") {
    NoteLoss(event);
    return OkStatus();
  }
  if (event["event"] == "following") return OkStatus();
  return WriteAll(STDOUT_FILENO, LineOf(event, context.colours));
}

}  // namespace

Result<int> RunEvents(Context& context) {
  ASSIGN_OR_RETURN(const std::string target, TargetOf(context.options));
  std::string cursor;
  const Status read =
      context.client.ReadEvents({.target = target}, [&](const Json& event) -> Status {
        if (const std::string seen = TextOf(event, "cursor"); !seen.empty()) cursor = seen;
        return PrintEvent(event, context);
      });
  if (!read && read.error().sys == EPIPE) return 0;  // hutch events | head
  if (read && context.options.no_follow) return 0;
  if (!read && cursor.empty()) return read.error();
  return Error{.code = Code::kUnavailable,
               .what = "the daemon went away",
               .hint = "--cursor " + cursor + " goes on from here once it is back"};
}

}  // namespace hutch::tools
