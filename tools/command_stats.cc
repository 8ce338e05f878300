// stats, top: what sandboxes use, once or again and again.
#include <algorithm>
#include <thread>

#include "base/text.h"
#include "tools/commands.h"
#include "tools/live_view.h"

namespace hutch::tools {
namespace {

using oci::Json;

// Long enough for a share of the CPU that means something.
constexpr std::chrono::milliseconds kTwoLooks{600};

// The member at this place; nullptr where there is none, or null.
const Json* At(const Json& json, const char* object, const char* member) {
  const auto outer = json.find(object);
  if (outer == json.end() || !outer->is_object()) return nullptr;
  const auto inner = outer->find(member);
  return inner == outer->end() || inner->is_null() ? nullptr : &*inner;
}

double NumberAt(const Json& json, const char* object, const char* member) {
  const Json* number = At(json, object, member);
  return number != nullptr && number->is_number() ? number->get<double>() : 0;
}

std::string SizeAt(const Json& json, const char* object, const char* member) {
  const Json* number = At(json, object, member);
  return number != nullptr && number->is_number_unsigned() ? FormatSize(number->get<uint64_t>())
                                                           : "-";
}

std::string CountAt(const Json& json, const char* object, const char* member) {
  const Json* number = At(json, object, member);
  return number != nullptr && number->is_number_unsigned() ? number->dump() : "-";
}

std::string Percent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string TextAt(const Json& json, const char* member) {
  const auto found = json.find(member);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "-";
}

std::string TargetOf(const std::string& id) {
  return "/v1/sandboxes/" + EncodeSegment(id) + "/stats";
}

// Of the sandboxes named; of all that run when none is. One that ends meanwhile is left out then.
Result<std::vector<Json>> Look(Context& context) {
  std::vector<Json> all;
  for (const std::string& id : context.options.ids) {
    ASSIGN_OR_RETURN(Json stats, context.client.Get(TargetOf(id)));
    all.push_back(std::move(stats));
  }
  if (!context.options.ids.empty()) return all;
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/sandboxes?state=running"));
  const auto sandboxes = reply.find("sandboxes");
  if (sandboxes == reply.end() || !sandboxes->is_array())
    return Error{.what = "the daemon's reply has no list of sandboxes"};
  for (const Json& sandbox : *sandboxes) {
    Result<Json> stats = context.client.Get(TargetOf(TextAt(sandbox, "id")));
    if (stats && stats->is_object()) all.push_back(*std::move(stats));
    if (!stats && stats.error().code != Code::kNotFound && stats.error().code != Code::kBadState)
      return std::move(stats).error();
  }
  return all;
}

std::string TableOf(const std::vector<Json>& all, Colours colours) {
  Table table({{"ID"},
               {"NAME"},
               {"CPU%", Align::kRight},
               {"MEMORY", Align::kRight},
               {"LIMIT", Align::kRight},
               {"MEM%", Align::kRight},
               {"PIDS", Align::kRight},
               {"DISK", Align::kRight},
               {"READ", Align::kRight},
               {"WRITTEN", Align::kRight}});
  for (const Json& stats : all) {
    const double limit = NumberAt(stats, "memory", "limit_bytes");
    const double used = NumberAt(stats, "memory", "current_bytes");
    table.Add({TextAt(stats, "id"), TextAt(stats, "name"),
               Percent(NumberAt(stats, "cpu", "percent")), SizeAt(stats, "memory", "current_bytes"),
               SizeAt(stats, "memory", "limit_bytes"), Percent(limit > 0 ? 100 * used / limit : 0),
               CountAt(stats, "pids", "current"), SizeAt(stats, "disk", "used_bytes"),
               SizeAt(stats, "io", "read_bytes"), SizeAt(stats, "io", "write_bytes")});
  }
  return table.Render(colours);
}

struct SortRow {
  const char* name;
  char key;
  const char* object;
  const char* member;
};
constexpr SortRow kSorts[] = {{"cpu", 'c', "cpu", "percent"},
                              {"memory", 'm', "memory", "current_bytes"}};

void Sort(std::vector<Json>* all, const SortRow& by) {
  std::stable_sort(all->begin(), all->end(), [&](const Json& a, const Json& b) {
    return NumberAt(a, by.object, by.member) > NumberAt(b, by.object, by.member);
  });
}

// Two looks, since a share of the CPU is of the time between them.
Result<std::vector<Json>> LookTwice(Context& context) {
  ASSIGN_OR_RETURN(const std::vector<Json> first, Look(context));
  if (first.empty()) return first;
  std::this_thread::sleep_for(kTwoLooks);
  return Look(context);
}

Status PrintOnce(Context& context, const SortRow* by) {
  ASSIGN_OR_RETURN(std::vector<Json> all, LookTwice(context));
  if (by != nullptr) Sort(&all, *by);
  if (context.options.json) return PrintJsonText({{"stats", all}});
  return Print(TableOf(all, context.colours));
}

Result<const SortRow*> ChosenSort(const std::string& name) {
  for (const SortRow& row : kSorts)
    if (name.empty() || name == row.name) return &row;
  return Error{.code = Code::kInvalidArgument,
               .what = "--sort: there is no \"" + name + "\"",
               .hint = "cpu or memory"};
}

}  // namespace

Result<int> RunStats(Context& context) {
  if (context.options.no_stream || context.options.json || !CanShowLive()) {
    RETURN_IF_ERROR(PrintOnce(context, nullptr));
    return 0;
  }
  return ShowLive(context.client, {.render = [&]() -> Result<std::string> {
                    ASSIGN_OR_RETURN(const std::vector<Json> all, Look(context));
                    return TableOf(all, Colours::kOff);
                  }});
}

Result<int> RunTop(Context& context) {
  ASSIGN_OR_RETURN(const SortRow* by, ChosenSort(context.options.sort));
  if (context.options.json || !CanShowLive()) {
    RETURN_IF_ERROR(PrintOnce(context, by));
    return 0;
  }
  const LiveView view{.render = [&]() -> Result<std::string> {
                        ASSIGN_OR_RETURN(std::vector<Json> all, Look(context));
                        Sort(&all, *by);
                        return std::to_string(all.size()) + " sandboxes by " + by->name +
                               "; c: by cpu, m: by memory, q: quit\n" + TableOf(all, Colours::kOff);
                      },
                      .on_key =
                          [&](char key) {
                            for (const SortRow& row : kSorts)
                              if (key == row.key) by = &row;
                          }};
  return ShowLive(context.client, view);
}

}  // namespace hutch::tools
