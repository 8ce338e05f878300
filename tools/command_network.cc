// net show, set, preset; network create, ls, inspect, rm; secret ls.
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/package_hosts.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr char kPackages[] = "packages";
constexpr size_t kMaxPresetsBytes = size_t{1} << 20;  // the daemon's own bound is as high

std::string TextOf(const Json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  if (!object.is_object() || it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

const Json& ListOf(const Json& object, const char* member) {
  static const Json none = Json::array();
  if (!object.is_object()) return none;
  const auto it = object.find(member);
  return it != object.end() && it->is_array() ? *it : none;
}

std::string Joined(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list)
    texts.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  return Join(texts, " ");
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// What a rule says beyond its host and ports.
std::string More(const Json& rule) {
  std::vector<std::string> parts;
  for (const char* member : {"methods", "paths"})
    if (!ListOf(rule, member).empty()) parts.push_back(Joined(ListOf(rule, member)));
  if (const std::string secret = TextOf(rule, "secret"); !secret.empty())
    parts.push_back("secret " + secret);
  if (!TextOf(rule, "tls").empty()) parts.emplace_back("TLS outward");
  return Join(parts, "; ");
}

std::string HostOf(const Json& rule) {
  const std::string host = TextOf(rule, "host");
  return host.empty() ? TextOf(rule, "cidr") : host;
}

std::string LimitsText(const Json& limits) {
  uint64_t rate = 0, total = 0, connections = 0;
  oci::ObjectReader reader(limits, "limits");
  reader.Uint("bytes_per_second", &rate).Uint("total_bytes", &total);
  reader.Uint("connections", &connections);
  IgnoreError(reader.Done(Unknown::kIgnore), "what is not a number is not shown");
  std::vector<std::string> parts;
  if (rate != 0) parts.push_back(FormatSize(rate) + " a second each way");
  if (total != 0) parts.push_back(FormatSize(total) + " in all");
  if (connections != 0) parts.push_back(std::to_string(connections) + " connections at once");
  return parts.empty() ? "none" : Join(parts, ", ");
}

std::string RulesText(const Json& rules, Colours colours) {
  if (rules.empty()) return "";
  Table table({{"ALLOWED"}, {"PORTS"}, {"WRITTEN AS"}, {"ONLY"}});
  for (const Json& rule : rules)
    table.Add({HostOf(rule), Joined(ListOf(rule, "ports")), TextOf(rule, "origin"), More(rule)});
  return "\n" + table.Render(colours);
}

std::string CountersText(const Json& counters, Colours colours) {
  if (!counters.is_object() || counters.empty()) return "";
  Table table({{"COUNTER"}, {"VALUE", Align::kRight}});
  for (const auto& [name, value] : counters.items()) table.Add({name, value.dump()});
  return "\n" + table.Render(colours);
}

std::string DeniedText(const Json& denied, Colours colours) {
  if (denied.empty()) return "";
  Table table({{"DENIED"},
               {"PORT", Align::kRight},
               {"BY"},
               {"TIMES", Align::kRight},
               {"AGE", Align::kRight},
               {"WHY"}});
  for (const Json& one : denied) {
    const std::string host = TextOf(one, "host");
    table.Add({OrDash(host.empty() ? TextOf(one, "address") : host), OrDash(TextOf(one, "port")),
               TextOf(one, "protocol"), TextOf(one, "times"), Age(TextOf(one, "at")),
               Cell{TextOf(one, "reason"), Colour::kYellow}});
  }
  return "\n" + table.Render(colours);
}

std::string PolicyText(const Json& policy, Colours colours) {
  const auto line = [&](const char* name, const std::string& value) {
    return value.empty() ? std::string()
                         : Paint(name, Colour::kBold, colours) + " " + Printable(value) + "\n";
  };
  std::string text = line("mode", TextOf(policy, "mode"));
  text += line("presets", Joined(ListOf(policy, "presets")));
  text += line("networks", Joined(ListOf(policy, "join")));
  text += line("addresses", Joined(ListOf(policy, "addresses")));
  const auto limits = policy.find("limits");
  if (limits != policy.end() && limits->is_object()) text += line("limits", LimitsText(*limits));
  text += RulesText(ListOf(policy, "allow"), colours);
  const auto counters = policy.find("counters");
  if (counters != policy.end()) text += CountersText(*counters, colours);
  return text + DeniedText(ListOf(policy, "denied"), colours);
}

Result<int> PrintList(Context& context, const Json& reply, const Table& table,
                      const std::string& names) {
  if (context.options.json)
    RETURN_IF_ERROR(PrintJsonText(reply));
  else
    RETURN_IF_ERROR(Print(context.options.ids_only ? names : table.Render(context.colours)));
  return 0;
}

std::string NetworkPath(const std::string& name) { return "/v1/networks/" + EncodeSegment(name); }

// The other presets of the file stay as they are.
Status WritePreset(const std::string& path, const Json& rules) {
  Json presets = Json::object();
  const auto text = ReadFile(path, kMaxPresetsBytes);
  if (text.has_value()) {
    auto parsed = oci::ParseJson(*text);
    if (!parsed.has_value() || !parsed->is_object())
      return Error{.code = Code::kInvalidArgument,
                   .what = path + " is no file of presets",
                   .hint = "it was left as it is"};
    presets = std::move(*parsed);
  } else if (text.error().code != Code::kNotFound) {
    return text.error();
  }
  presets[kPackages] = rules;
  return WriteFileAtomic(path, presets.dump(2) + "\n", Durability::kDisk);
}

Result<int> ScanPackages(Context& context) {
  const Options& options = context.options;
  const char* const own_home = std::getenv("HOME");
  const bool own = options.root.empty();
  ASSIGN_OR_RETURN(
      const std::vector<PackageHost> hosts,
      FindPackageHosts(own ? "/" : options.root, own && own_home != nullptr ? own_home : "/root"));
  Json rules = Json::array();
  Table table({{"RULE"}, {"FROM"}});
  for (const PackageHost& host : hosts) {
    rules.push_back(host.rule);
    table.Add({host.rule, host.where});
  }
  if (!options.write.empty()) {
    RETURN_IF_ERROR(WritePreset(options.write, rules));
    RETURN_IF_ERROR(Print(table.Render(context.colours)));
    return 0;
  }
  if (!options.json)
    IgnoreError(WriteAll(STDERR_FILENO, table.Render(ColoursFor(STDERR_FILENO))),
                "a closed stderr was the caller's choice");
  RETURN_IF_ERROR(PrintJsonText({{kPackages, rules}}));
  return 0;
}

}  // namespace

Result<int> RunNetShow(Context& context) {
  ASSIGN_OR_RETURN(
      const Json policy,
      context.client.Get("/v1/sandboxes/" + EncodeSegment(context.options.id) + "/network"));
  if (context.options.json || !policy.is_object())
    RETURN_IF_ERROR(PrintJsonText(policy));
  else
    RETURN_IF_ERROR(Print(PolicyText(policy, context.colours)));
  return 0;
}

Result<int> RunNetSet(Context& context) {
  ASSIGN_OR_RETURN(Json network, PlanNetwork(context.options));
  if (network.is_null())
    return Error{.code = Code::kInvalidArgument,
                 .what = "nothing was said of the network",
                 .hint = "--network none closes it; --allow, --join and --net-limit open it"};
  ASSIGN_OR_RETURN(
      const Json sandbox,
      context.client.Call({.method = "PATCH",
                           .target = "/v1/sandboxes/" + EncodeSegment(context.options.id),
                           .body = oci::PrintJson({{"network", network}})}));
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(sandbox));
  return 0;
}

Result<int> RunNetPreset(Context& context) {
  const Options& options = context.options;
  if (options.reference == kPackages) return ScanPackages(context);
  if (!options.reference.empty() || !options.write.empty() || !options.root.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "only \"packages\" can be found on this host",
                 .hint = "hutch net preset lists what the daemon has"};
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/network/presets"));
  Table table({{"PRESET"}, {"ALLOWED"}, {"PORTS"}, {"ONLY"}});
  std::string names;
  for (const Json& preset : ListOf(reply, "presets")) {
    const std::string name = TextOf(preset, "name");
    names += name + "\n";
    if (ListOf(preset, "allow").empty()) table.Add({name, "nothing"});
    for (const Json& rule : ListOf(preset, "allow"))
      table.Add({name, HostOf(rule), Joined(ListOf(rule, "ports")), More(rule)});
  }
  return PrintList(context, reply, table, names);
}

Result<int> RunNetworkCreate(Context& context) {
  ASSIGN_OR_RETURN(const Json network,
                   context.client.Post("/v1/networks", {{"name", context.options.id}}));
  if (context.options.json)
    RETURN_IF_ERROR(PrintJsonText(network));
  else
    RETURN_IF_ERROR(Print(TextOf(network, "name") + "\n"));
  return 0;
}

Result<int> RunNetworkList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/networks"));
  Table table({{"NAME"}, {"IPV4"}, {"IPV6"}, {"MEMBERS"}});
  std::string names;
  for (const Json& network : ListOf(reply, "networks")) {
    std::vector<std::string> members;
    for (const Json& member : ListOf(network, "members")) {
      const std::string name = TextOf(member, "name");
      members.push_back(name.empty() ? TextOf(member, "id") : name);
    }
    names += TextOf(network, "name") + "\n";
    table.Add({TextOf(network, "name"), TextOf(network, "subnet_v4"), TextOf(network, "subnet_v6"),
               OrDash(Join(members, " "))});
  }
  return PrintList(context, reply, table, names);
}

Result<int> RunNetworkInspect(Context& context) {
  ASSIGN_OR_RETURN(const Json network, context.client.Get(NetworkPath(context.options.id)));
  RETURN_IF_ERROR(PrintJsonText(network));
  return 0;
}

Result<int> RunNetworkRemove(Context& context) {
  int exit_code = 0;
  for (const std::string& name : context.options.ids) {
    const auto removed = context.client.Delete(NetworkPath(name));
    if (removed && !context.options.json) RETURN_IF_ERROR(Print(name + "\n"));
    if (removed) continue;
    PrintError(removed.error(), context.options);
    exit_code = kExitFailed;  // and on with the others
  }
  return exit_code;
}

Result<int> RunSecretList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/secrets"));
  Table table({{"NAME"}, {"HEADER"}, {"HOSTS"}});
  std::string names;
  for (const Json& secret : ListOf(reply, "secrets")) {
    names += TextOf(secret, "name") + "\n";
    const auto error = secret.find("error");
    if (error == secret.end() || error->is_null())
      table.Add(
          {TextOf(secret, "name"), TextOf(secret, "header"), Joined(ListOf(secret, "hosts"))});
    else
      table.Add(
          {TextOf(secret, "name"), "-", Cell{"wrong: " + TextOf(*error, "message"), Colour::kRed}});
  }
  return PrintList(context, reply, table, names);
}

}  // namespace hutch::tools
